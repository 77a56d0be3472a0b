"""Placement prediction held against what others measured and published."""

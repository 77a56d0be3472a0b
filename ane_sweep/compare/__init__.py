"""Comparing what was measured: two cells, two sweeps, many nights."""

"""Nightly sweeps: a time budget, rotation, comparison with the good nights, retention and a summary."""

"""Comparisons of measurements: two cells, two sweeps, many nights."""

"""Comparing what was measured: two cells, two sweeps, many nights. Plain Python, standard library only."""

"""Rewrites that change a program's interface, one file each; see ane_sweep/fix/interface.py."""

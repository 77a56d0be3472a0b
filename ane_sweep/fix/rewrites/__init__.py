"""The rewrites, one file each: the declaration REWRITE (fix/rewrite.py), `match` and `apply`."""

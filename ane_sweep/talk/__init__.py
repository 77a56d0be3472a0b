"""Sessions with a cell's model: its program is made as in a sweep, or taken from a run; then a worker answers requests."""

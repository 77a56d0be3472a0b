"""A cell's model, talked to: its program is made as a sweep makes it, or taken from a run; then a worker answers."""

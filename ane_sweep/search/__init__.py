"""The cell that is wanted, without the full product: limits drop cells as soon as they are known, the rest is timed in the
order of its estimate."""

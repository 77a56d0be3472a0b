"""A sweep as one file that merges into another store once."""

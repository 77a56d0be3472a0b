"""Bundles: a finished sweep as one file, which another store merges only once."""

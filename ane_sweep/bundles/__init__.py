"""Bundles: a finished sweep as one file, which another outputs folder imports only once."""

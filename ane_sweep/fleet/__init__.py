"""A fleet: its workers, the connections to its scheduler, and its certificates. Dask distributed carries it; it measures nothing."""

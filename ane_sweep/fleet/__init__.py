"""A fleet: its workers, the connections to its scheduler, and its certificates. It uses Dask distributed, and measures nothing itself."""

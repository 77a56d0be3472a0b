"""A fleet: who is there, how it is reached, and what is trusted. Dask distributed carries it; nothing here measures."""

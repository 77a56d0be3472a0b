"""Everything on disk: the cache of artifacts, runs, locks, past durations, and stores that machines share."""

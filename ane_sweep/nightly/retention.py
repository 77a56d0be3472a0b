"""Deletion of a nightly's old runs, and of the least recently used artifacts in the cache."""

from pathlib import Path

from ane_sweep.compare import sides
from ane_sweep.errors import StoreError
from ane_sweep.store import runs
from ane_sweep.store.cache import Store
from ane_sweep.terminal import say


def keep(out: Path, store: Store, *, keep_runs: int, cache_gb: float) -> list[str]:
    """Delete runs and artifacts beyond the limits; return the names of deleted runs. A run stays if it is unfinished, if no
    nightly made it, or if `good` uses a record of it. While another sweep uses the cache, it stays, with a warning.
    """
    needed = needed_for_good(out)
    finished = [run for run in runs.list_runs(out) if run.finished and run.info.get("nightly")]
    gone = [run.stamp for run in finished[keep_runs:] if run.stamp not in needed and runs.delete(run)]
    try:
        store.prune(max_bytes=int(cache_gb * 1e9))
    except StoreError as error:
        say(f"doubt: {error}")
    return gone


def needed_for_good(out: Path) -> set[str]:
    """Return the runs that hold the baseline of a cell."""
    return {one.sweep for one in sides.newest(sides.good_nights(out))}

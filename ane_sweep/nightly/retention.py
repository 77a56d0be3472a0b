"""What a nightly throws away: old runs, and of the cache what was not used for longest."""

from pathlib import Path

from ane_sweep.compare import sides
from ane_sweep.errors import StoreError
from ane_sweep.store import runs
from ane_sweep.store.cache import Store
from ane_sweep.terminal import say


def keep(out: Path, store: Store, *, keep_runs: int, cache_gb: float) -> list[str]:
    """Delete what is beyond the limits; returns names of deleted runs. A run stays that is unfinished, that no nightly
    made, or that `good` still takes a cell's record from. The cache stays as it is, with a doubt, while another sweep uses it.
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
    """The runs that hold some cell's level."""
    return {one.sweep for one in sides.newest(sides.good_nights(out))}

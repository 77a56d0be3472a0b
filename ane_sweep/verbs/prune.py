"""`ane-sweep prune older-than-days=N | max-gb=N`: delete cached artifacts by last use"""

from ane_sweep.errors import ConfigError
from ane_sweep.store.cache import open_store
from ane_sweep.terminal import count, print_result
from ane_sweep.words import Parser, amount


def prune(args: list[str]) -> int:
    """Delete cached artifacts: older-than-days=N, or the least recently used until max-gb=N remain."""
    parser = Parser(
        "prune older-than-days=N | max-gb=N [--json] [out=PATH]",
        "Delete cached artifacts by last use. Records, reports and runs stay, and what is needed again is made again.",
        "ane-sweep prune older-than-days=30",
    )
    parser.add("older-than-days=N", "those not used for so many days (no default)", amount)
    parser.add("max-gb=N", "the least recently used, until so many GB remain (no default)", amount)
    parser.json("removed (folders in the cache)", "a line")
    parser.outputs()
    given = parser.read(args)
    from ane_sweep.store import leftovers

    days, gigabytes = given.older_than_days, given.max_gb
    if days is None and gigabytes is None:
        raise ConfigError("prune needs older-than-days=N or max-gb=N")
    with open_store(given.out, writes=False) as store:
        store.sweep_tmp()
        leftovers.tidy(given.out)
        removed = store.prune(None if gigabytes is None else int(gigabytes * 1e9), days)
    return print_result(given.json, f"removed {count(len(removed), 'artifact')}", removed=list(map(str, removed)))

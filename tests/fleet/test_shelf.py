"""Whole sweeps on a fleet of this machine, over TLS: four workers with different chips, two of them played by coremltools'
stand-in, and one of them killed in the midst of a timing. `python -m tests.bench faults` does more, and counts.
"""

import pytest

from ane_sweep.store import files
from tests.bench import _shelf

CHIPS = {"mini-1": "m1", "mini-2": "m2", "mini-4": "m4", "pro-5": "m5"}
PLAYED = (
    "mini-1",
    "mini-4",
)  # the others run on the reference runtime, and say which chip they were told to answer for


@pytest.mark.slow
def test_four_macs_that_are_played_measure_one_sweep_and_a_killed_worker_costs_nothing(tmp_path):
    with _shelf.Shelf(tmp_path) as shelf:
        for name, chip in CHIPS.items():
            shelf.worker(name, chip, played=name in PLAYED)
        shelf.ready(*CHIPS)
        sweep = shelf.sweep("machine=m1,m2,mini-4,m5", "latency.repeats=1")
        _shelf.kill(_shelf.worker_of(shelf.caught("latency")))
        records = sweep.end()
        said = shelf.said("sweep-out")
        _check_records(records, said)
        _check_caches(shelf)


def _check_records(records, said):
    whole = dict.fromkeys(("cells", "different", "done", "right machine", "timed once"), 4)
    assert _shelf.truth(records, CHIPS, 1) == whole, said
    assert [record.host["worker"] for record in records] == list(CHIPS)
    found = [record.host["chip"] if "stand_in" in record.host else record.host["declared_chip"] for record in records]
    assert found == ["Apple M1", "m2", "Apple M4", "m5"]
    assert [record.realised["runtime"] for record in records] == ["coreml", "reference"] * 2
    assert [bool(record.realised.get("stand_in")) for record in records] == [True, False] * 2
    assert " on mini-1 " in said and "so far" in said, "progress names the machine"


def _check_caches(shelf):
    """Whoever made or pulled it, an artifact is the same bytes."""
    held = {}
    for cache in (shelf.folder / name / "cache" for name in (*CHIPS, "out")):
        for stage in ("reference", "convert", "predict"):
            for folder in (cache / stage).glob("*/*"):
                assert files.damage(folder, content=True) is None
                held.setdefault((stage, folder.name), set()).add(files.digest(folder))
    assert len(held) == 3 and all(len(digests) == 1 for digests in held.values())

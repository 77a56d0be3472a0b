"""Whole sweeps on a fleet of this machine, over TLS: four workers with different chips, which coremltools' stand-in plays; and
one of its workers killed in the midst of a timing. `python -m ane_sweep.bench faults` does this and more, and counts."""

import pytest

from ane_sweep.bench import _shelf, faults
from ane_sweep.store import files

CHIPS = {"mini-1": "m1", "mini-2": "m2", "mini-4": "m4", "pro-5": "m5"}


@pytest.mark.slow
@pytest.mark.ci
def test_four_macs_that_are_played_measure_one_sweep_and_a_killed_worker_costs_nothing(tmp_path):
    with _shelf.Shelf(tmp_path, stand_in=True) as shelf:
        for name, chip in CHIPS.items():
            shelf.worker(name, chip)
        shelf.ready(*CHIPS)
        sweep = shelf.sweep("machine=m1,m2,mini-4,m5", "latency.repeats=1")
        _shelf.kill(_shelf.worker_of(shelf.caught("latency")))
        records = sweep.end()
        said = shelf.said("sweep-out")
        _check_records(records, said)
        _check_caches(shelf)


def _check_records(records, said):
    assert [record.status.value for record in records] == ["ok"] * 4, said
    assert _shelf.truth(records, CHIPS, 1) == dict.fromkeys(
        ("cells", "different", "done", "right machine", "timed once"), 4
    )
    assert [record.host["worker"] for record in records] == list(CHIPS)
    assert [record.host["chip"] for record in records] == [f"Apple {chip.upper()}" for chip in CHIPS.values()]
    medians = [record.value("latency_median_ms") for record in records]
    assert medians[0] > 1.5 * max(medians[1:]), "the script's M1 takes twice as long"
    assert all(record.host["stand_in"].startswith(record.realised["stand_in"][:2]) for record in records)
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
    assert faults.FAULTS

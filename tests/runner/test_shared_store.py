"""Sweeps of several machines with one store between them: what one prepared no other prepares, and figures stay at home."""

import errno
import json

import pytest
from played import Stage

from ane_sweep.store import remote

PREPARES = ["convert", "chunk"]
FIGURES = ["score", "latency"]


@pytest.fixture
def machines(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "PAUSES", ())
    store = str(tmp_path / "nfs")
    first, second = (Stage(monkeypatch, tmp_path / name) for name in ("first", "second"))

    def sweep(machine: Stage, run: str = "one", store: str | None = store):
        monkeypatch.setattr("ane_sweep.runner.isolate.run_task", machine.play)
        return machine.sweep(run, store=store)

    return first, second, sweep, tmp_path / "nfs"


def noted(machine: Stage, run: str = "one") -> dict:
    return json.loads((machine.out / "runs" / run / "run.json").read_text())["store"]


def test_a_second_machine_prepares_nothing_and_measures_itself(machines):
    first, second, sweep, _ = machines
    sweep(first)
    found = sweep(second)
    assert sorted(first.called) == sorted(PREPARES + FIGURES) and sorted(second.called) == sorted(FIGURES)
    assert {stage: str(found[stage].status) for stage in PREPARES} == {"convert": "cached", "chunk": "cached"}
    assert (noted(first)["pushed"], noted(second)["pulled"], noted(second)["pushed"]) == (2, 2, 0)
    assert "2 pulled" in second.said[-1] and "0 pushed" in second.said[-1]
    for stage in PREPARES:
        assert (first.stored(stage) / "weight.bin").read_bytes() == (second.stored(stage) / "weight.bin").read_bytes()


def test_what_was_made_before_there_was_a_store_is_pushed(machines):
    first, second, sweep, _ = machines
    sweep(first, "alone", store=None)
    sweep(first, "shared")
    assert "convert" not in first.called and noted(first, "shared")["pushed"] == 2
    sweep(second)
    assert "convert" not in second.called


def test_a_damaged_artifact_in_the_store_is_made_again_and_replaced(machines):
    first, second, sweep, folder = machines
    sweep(first)
    for path in (folder / "cas").glob("??/*"):
        if path.read_bytes() == (first.stored("chunk") / "weight.bin").read_bytes():
            path.write_bytes(b"x" * 32)
    found = sweep(second)
    assert "convert" not in second.called and "chunk" in second.called
    assert "holds other bytes" in found["chunk"].reason and "made again" in found["chunk"].reason
    for stage in PREPARES:
        assert (first.stored(stage) / "weight.bin").read_bytes() == (second.stored(stage) / "weight.bin").read_bytes()
    sweep(second, "again")
    assert noted(second, "again")["pulled"] == 0


def test_what_was_damaged_is_whole_for_the_next_machine(machines, tmp_path, monkeypatch):
    first, second, sweep, folder = machines
    sweep(first)
    for path in (folder / "cas").glob("??/*"):
        path.write_bytes(b"")
    sweep(second)
    third = Stage(monkeypatch, tmp_path / "third")
    sweep(third)
    assert sorted(third.called) == sorted(FIGURES)


def test_a_full_store_costs_no_cell_and_is_said_once(machines, monkeypatch):
    first, _, sweep, _ = machines

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(remote, "_put", full)
    found = sweep(first)
    assert {str(outcome.status) for outcome in found.values()} == {"ok"}
    said = [line for line in first.said if "cannot be written" in line]
    assert len(said) == 1 and "no space left on it" in said[0]
    assert [entry["stage"] for entry in noted(first)["unpushed"]] == PREPARES
    assert "2 artifacts not pushed (no space left on it): the same command tries again" in first.said[-1]


def test_a_store_that_comes_back_gets_the_rest_at_the_end(machines, monkeypatch):
    first, _, sweep, _ = machines
    put, gone = remote._put, []

    def cut(*args):
        if "latency" not in first.called:
            gone.append(1)
            raise ConnectionResetError("cut")
        put(*args)

    monkeypatch.setattr(remote, "_put", cut)
    sweep(first)
    assert gone and noted(first)["pushed"] == 2 and noted(first)["unpushed"] == []


def test_an_unreachable_store_costs_no_cell(machines, tmp_path):
    first, _, sweep, _ = machines
    found = sweep(first, store=str(tmp_path / "not" / "mounted"))
    assert {str(outcome.status) for outcome in found.values()} == {"ok"}
    assert sum("is it mounted?" in line for line in first.said) == 3  # to read, to write, and what was not pushed

"""Run folders: what is left of killed processes goes, what somebody may still want or works on stays."""

import os
import time
from pathlib import Path

import pytest

from ane_sweep.__main__ import main
from ane_sweep.bridge import disk
from ane_sweep.store import leftovers, runs
from ane_sweep.store.cache import Store

HOUR, DAY = 3600, 86400


def put(path: Path, age: float = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return aged(path, age)


def aged(path: Path, age: float) -> Path:
    os.utime(path, (time.time() - age,) * 2)
    return path


def interrupted(out: Path, name: str, age: float) -> Path:
    """A run whose process was killed while a worker ran."""
    folder = out / "runs" / name
    put(folder / "tasks" / "convert-k" / "tmp" / "a copy of the weights")
    put(folder / "tasks" / "convert-k" / ".result.json.abcdefgh", age)
    put(folder / "lock")
    disk.write_json(folder / "run.json", {"schema": 1})
    aged(folder / "tasks", age)
    return aged(folder, age)


def test_what_killed_processes_left_is_deleted(tmp_path):
    left = [
        put(tmp_path / name, 2 * HOUR)
        for name in (".tags.json.a1b2c3d4", "cache/.digests.json.a1b2c3_4", "nightly/.state.json.abcdefgh",
                     "runs/done/.run.json.abcdefgh", "runs/done/.records.jsonl.abcdefgh", "runs/done/.report.html.abcdefgh")
    ]  # fmt: skip
    kept = [
        put(tmp_path / name, age)
        for name, age in ((".tags.json.a1b2c3d4x", 9 * DAY), (".bashrc", 9 * DAY), ("runs/done/records.jsonl", 9 * DAY),
                          ("runs/done/.run.json.youngone", 60), ("runs/notes/mine.txt", 99 * DAY))
    ]  # fmt: skip
    old, recent, fresh = (interrupted(tmp_path, *one) for one in (("old", 8 * DAY), ("recent", DAY), ("fresh", 60)))
    assert leftovers.tidy(tmp_path) == ["old"]
    assert not any(path.exists() for path in left) and all(path.exists() for path in kept)
    assert not old.exists() and (fresh / "tasks" / "convert-k" / "tmp").exists()
    assert [path.name for path in sorted(recent.rglob("*"))] == ["run.json", "tasks", "convert-k"]
    assert leftovers.tidy(tmp_path) == []


def test_a_run_that_somebody_works_on_is_left_alone_however_old(tmp_path):
    folder = interrupted(tmp_path, "long", 30 * DAY)
    run = runs.Run(folder, {})
    assert runs.hold(run)
    aged(folder, 30 * DAY)
    assert leftovers.tidy(tmp_path) == [] and (folder / "tasks" / "convert-k" / "tmp").exists()
    run.release()
    aged(folder, 30 * DAY)
    assert leftovers.tidy(tmp_path) == ["long"]


def test_a_lock_whose_file_is_gone_is_nobodys(tmp_path, monkeypatch):
    """Opened just before its holder let go of it and deleted the file: the next to come would hold another file."""
    run, late = runs.Run(tmp_path, {}), runs.Run(tmp_path, {})
    assert runs.hold(run) and not runs.hold(late)
    attempt = runs.locks.Lock.attempt
    monkeypatch.setattr(runs.locks.Lock, "attempt", lambda lock: (run.release(), attempt(lock))[1])
    assert not runs.hold(late)
    monkeypatch.undo()
    assert runs.hold(late)


@pytest.mark.parametrize("command", [["prune", "max-gb=1"]])
def test_prune_tidies_too(tmp_path, command, capsys):
    interrupted(tmp_path, "old", 8 * DAY)
    with Store(tmp_path / "cache"):
        lock = put(tmp_path / "cache" / "locks" / "convert-abc.lock")
    assert main([*command, f"out={tmp_path}"]) == 0
    assert not (tmp_path / "runs" / "old").exists() and not lock.exists()

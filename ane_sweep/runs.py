"""Run folders: outputs/runs/<stamp>/, one a sweep; which one a command goes on with.

run.json      {schema, stamp, plan_key, command, axes, cells, started, finished, tracking, nightly}
tasks/        one folder a task: task.json, result.json, stdout.txt, stderr.txt, what a timing left
records.jsonl the sweep's records (record.py)
"""

import fcntl
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ane_sweep import bridge, outward, record
from ane_sweep.errors import RunNotFound
from ane_sweep.plan import Plan
from ane_sweep.tasks import Task

SCHEMA = 1
STALE_HOURS = 12  # a nightly does not go on with what was interrupted longer ago


@dataclass
class Run:
    """A run's folder, held by a lock for as long as this process works on it."""

    folder: Path
    info: dict[str, Any]
    lock: Any = None

    @property
    def stamp(self) -> str:
        return self.folder.name

    @property
    def finished(self) -> bool:
        return self.info["finished"] is not None

    def task_folder(self, task: Task) -> Path:
        return self.folder / "tasks" / f"{task.stage}-{task.key[:12]}"

    def earlier_result(self, task: Task) -> dict[str, Any] | None:
        """The result that this very run already has for a task, from before it was interrupted."""
        result = bridge.read_json(self.task_folder(task) / "result.json")
        return result if result and result.get("key") == task.key else None

    def finish(self) -> None:
        self.info["finished"] = _now()
        bridge.write_json(self.folder / "run.json", self.info)


def open_run(out: Path, plan: Plan, command: Sequence[str], settings: Mapping[str, Any]) -> Run:
    """The run to work on: an unfinished one of the same plan, the one asked for, or a new one. Raises RunNotFound."""
    resume = settings["resume"]
    mine = [run for run in list_runs(out) if run.info["plan_key"] == plan.key]
    if resume is not None:
        wanted = [run for run in mine if resume in ("last", run.stamp)]
        if not wanted:
            raise RunNotFound(_not_resumable(out, resume))
        if wanted[0].finished or _hold(wanted[0]):
            return wanted[0]
        raise RunNotFound(f"resume={resume}: {wanted[0].stamp} is being run by another process just now")
    for run in mine:
        if not run.finished and not _stale(run, settings) and _hold(run):
            return run
    return _new(out, plan, command, settings)


def list_runs(out: Path) -> list[Run]:
    """Every run under an outputs folder, newest first."""
    found = []
    for folder in sorted((out / "runs").glob("*"), reverse=True):
        info = bridge.read_json(folder / "run.json")
        if info is not None and info.get("schema") == SCHEMA:
            found.append(Run(folder, info))
    return sorted(found, key=lambda run: run.info["started"], reverse=True)


def find_run(out: Path, name: str | None) -> Run:
    """The named run, or the newest that has records. Raises RunNotFound with the names there are."""
    runs = [run for run in list_runs(out) if (run.folder / record.FILE_NAME).is_file()]
    chosen = next((run for run in runs if name in (None, "last", run.stamp)), None)
    if chosen is None:
        names = ", ".join(run.stamp for run in runs[:8]) or "none yet; `ane-sweep` makes one"
        raise RunNotFound(
            f"no sweep {name or ''} with records under {out / 'runs'}; there are: {names}".replace("  ", " ")
        )
    return chosen


def _not_resumable(out: Path, resume: str) -> str:
    named = next((run for run in list_runs(out) if run.stamp == resume), None)
    if named:
        theirs = shlex.join(["ane-sweep", *named.info["command"]])
        return (
            f"resume={resume}: that run is of another matrix, host or version of the tools than this command. "
            f"Its own command was: {theirs}; its records: ane-sweep report {resume}"
        )
    known = ", ".join(run.stamp for run in list_runs(out)[:8]) or "none"
    return f"resume={resume}: no earlier run of this matrix under {out / 'runs'}; runs there: {known}"


def _stale(run: Run, settings: Mapping[str, Any]) -> bool:
    """Whether an unfinished run is of another night: timings of two nights are not one sample."""
    age = datetime.now().astimezone() - datetime.fromisoformat(run.info["started"])
    return settings["nightly"]["enabled"] and age > timedelta(hours=STALE_HOURS)


def _new(out: Path, plan: Plan, command: Sequence[str], settings: Mapping[str, Any]) -> Run:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    for name in _names(stamp):
        folder = out / "runs" / name
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        info = {
            "schema": SCHEMA,
            "stamp": name,
            "plan_key": plan.key,
            "command": outward.values(list(command), outward.redacted),
            "axes": plan.axes,
            "cells": len(plan.cells),
            "started": _now(),
            "finished": None,
            "tracking": outward.values(dict(settings["tracking"]), outward.credentials),
            "nightly": settings["nightly"]["enabled"],
        }
        run = Run(folder, info)
        _hold(run)
        bridge.write_json(folder / "run.json", info)
        return run
    raise AssertionError("unreachable")


def _names(stamp: str) -> Iterator[str]:
    yield stamp
    for number in range(2, 1000):
        yield f"{stamp}-{number}"


def _hold(run: Run) -> bool:
    """Take the run's lock, which the kernel releases when this process dies; False when another holds it."""
    handle = (run.folder / "lock").open("w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return False
    run.lock = handle
    return True


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="milliseconds")

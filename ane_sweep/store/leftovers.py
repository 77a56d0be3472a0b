"""Deletion of leftovers of killed processes and old unfinished runs in the outputs; it follows no link."""

import contextlib
import os
import re
import time
from pathlib import Path

from ane_sweep.bridge import disk
from ane_sweep.store import runs

ABANDONED_DAYS = 7
_ASIDE = re.compile(r"\..+\.(json|jsonl|html|md)\.\w{8}")  # bridge.disk.replace_file's
_SETTLED_S = 3600  # what changed since may be somebody's work


def tidy(out: Path) -> list[str]:
    """Delete leftovers of killed processes and unfinished runs that were not continued for ABANDONED_DAYS.

    Return the names of those runs. Leftovers are temporary files, temporary folders of workers, and locks; recent or
    locked ones stay.
    """
    _delete_asides(out)
    for name in ("cache", "nightly"):
        _delete_asides(out, name)
    gone = []
    for name in _names_in(out, "runs"):
        _delete_asides(out, "runs", name)
        with contextlib.suppress(FileNotFoundError):  # another process tidies as well
            gone += [name] if _abandoned(out, name) else []
    return gone


def _abandoned(out: Path, name: str) -> bool:
    """Tidy an interrupted run's folder. Return True if it was old and was deleted."""
    run, place = runs.Run(out / "runs" / name, {}), ("runs", name)
    names = set(_names_in(out, *place))
    if "tasks" not in names or names - {"tasks", "run.json", runs.STUDY, runs.LOCK}:
        return False
    with disk.open_folder(out, *place) as folder:
        age = 0.0 if folder is None else min(_seconds_since_change(folder, part) for part in (".", "tasks"))
    if age < _SETTLED_S or not runs.hold(run):
        return False
    if age > ABANDONED_DAYS * 86400:
        return runs.delete(run)
    for task in _names_in(out, *place, "tasks"):
        with disk.open_folder(out, *place, "tasks", task) as folder:
            if folder is not None:
                disk.remove_entry(folder, "tmp")
        _delete_asides(out, *place, "tasks", task)
    run.release()
    return False


def _names_in(out: Path, *names: str) -> list[str]:
    """Return the names in a folder below `out`, sorted; none if a link leads there."""
    with disk.open_folder(out, *names) as folder:
        return [] if folder is None else sorted(os.listdir(folder))


def _delete_asides(out: Path, *names: str) -> None:
    with disk.open_folder(out, *names) as folder:
        for name in os.listdir(folder) if folder is not None else ():
            if folder is not None and _ASIDE.fullmatch(name) and _seconds_since_change(folder, name) > _SETTLED_S:
                disk.remove_entry(folder, name)


def _seconds_since_change(folder: int, name: str) -> float:
    try:
        return time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return float("inf")

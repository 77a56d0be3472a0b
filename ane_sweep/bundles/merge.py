"""Bundles into an outputs folder: each sweep once, however often and in whatever order its exports arrive."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from ane_sweep.bridge import disk
from ane_sweep.bridge.record import FILE_NAME, Record, Status, read_records, write_records
from ane_sweep.bundles import bundle
from ane_sweep.bundles.bundle import Bundle
from ane_sweep.report import drift, page
from ane_sweep.report.document import Sweep
from ane_sweep.report.drift import Drift
from ane_sweep.store import runs

STATUSES = {Status.OK: 0, Status.DEGRADED: 1, Status.FALLBACK: 2}  # the best first; all others are WORST
WORST = 3


@dataclass
class Merged:
    """What an import comes to: the run's folder, how many records are new, replaced by a later export, or known, and
    what the folder will hold; `records` is empty where it stays as it is.

    disputed   records that differ from those there, of an export that ended at the same moment: see `_better`
    """

    folder: Path
    new: int
    replaced: int
    known: int
    disputed: int = 0
    records: list[Record] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    drift: Drift | None = None


def take_in(given: Bundle, out: Path) -> Merged:
    """Put a bundle's records where `report`, `compare` and `log` find them, with a report.

    Nothing is written before all of it is made: what cannot be reported is not taken in.
    """
    merged = merge(given, out)
    if merged.records:
        texts = page.texts(Sweep(merged.records, merged.info, merged.drift))
        write(merged)
        page.put(merged.folder, texts)
    return merged


def merge(given: Bundle, out: Path) -> Merged:
    """What a bundle adds to an outputs folder; writes nothing.

    The same sweep of the same machine is merged into the run it became before, or into the very run that was exported;
    a sweep of another machine that has the same stamp gets a name of its own.
    """
    folder = _own_run(given, out) or _imported_run(given, out) or _new_folder(given, out)
    before = {record.cell_key: record for record in read_records(folder)} if (folder / FILE_NAME).exists() else {}
    if before and not _is_half(folder) and not (disk.read_json(folder / bundle.RUN) or {}).get("imported"):
        return Merged(folder, 0, 0, len(given.records))  # the original: it knows more than its own export
    for record in given.records:
        record.sweep = folder.name
    arrived = {record.cell_key: record for record in given.records}
    there, there_drift = disk.read_json(folder / bundle.RUN) or {}, drift.read(folder)
    ended, ended_there = _moment(given.info.finished or given.info.started), _moment(there.get("finished"))
    if ended < ended_there:
        after, info, found = arrived | before, there, there_drift
    elif ended > ended_there:
        after, info, found = before | arrived, _info(given, folder), given.drift or there_drift
    else:
        after = before | {key: _better(before.get(key), record) for key, record in arrived.items()}
        info, found = (
            there or _info(given, folder),
            max(filter(None, (given.drift, there_drift)), key=repr, default=None),
        )
    differ = [key for key in arrived.keys() & before.keys() if arrived[key].to_json() != before[key].to_json()]
    new, replaced = len(arrived.keys() - before.keys()), sum(after[key] is arrived[key] for key in differ)
    disputed = len(differ) if ended == ended_there else 0
    known = len(arrived) - new - replaced
    return Merged(folder, new, replaced, known, disputed, list(after.values()), info | {"cells": len(after)}, found)


def write(merged: Merged) -> None:
    """Leave records.jsonl, drift.json, and last run.json: without it the folder is no run, and an import made anew."""
    write_records(merged.folder, merged.records)
    if merged.drift is not None:
        disk.write_json(merged.folder / bundle.DRIFT, msgspec.to_builtins(merged.drift))
    disk.write_json(merged.folder / bundle.RUN, merged.info)


def _better(before: Record | None, arrived: Record) -> Record:
    """Return one of two records of a cell whose exports ended at the same moment: by status, then by their text, so that
    the order in which they arrive decides nothing."""
    both = [one for one in (before, arrived) if one is not None]
    return max(both, key=lambda one: (-STATUSES.get(one.status, WORST), one.to_json()))


def _moment(text: Any) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return 0.0


def _own_run(given: Bundle, out: Path) -> Path | None:
    """The run that the bundle was exported from, if this is the folder it left and the machine it ran on."""
    folder = out / "runs" / given.manifest.sweep
    if not (out / bundle.SALT).exists() or not (folder / FILE_NAME).is_file():
        return None
    mine = not (disk.read_json(folder / bundle.RUN) or {}).get("imported")
    return folder if mine and bundle.host_id(out) == given.manifest.host else None


def _imported_run(given: Bundle, out: Path) -> Path | None:
    known = (run for run in runs.list_runs(out) if (run.info.get("imported") or {}).get("identity") == given.identity)
    return next((run.folder for run in known), None)


def _new_folder(given: Bundle, out: Path) -> Path:
    plain = out / "runs" / given.manifest.sweep
    if not plain.exists() or _is_half(plain):
        return plain
    return plain.with_name(f"{plain.name}-{given.manifest.host[:8]}")


def _is_half(folder: Path) -> bool:
    """Whether an import that was killed, or met a full disk, left this: neither run.json nor the tasks of a run made here."""
    return folder.is_dir() and not (folder / bundle.RUN).exists() and not (folder / "tasks").exists()


def _info(given: Bundle, folder: Path) -> dict[str, Any]:
    """run.json of an imported sweep. Its plan key is nobody's, so no command ever goes on with it."""
    return {
        "schema": runs.SCHEMA,
        "stamp": folder.name,
        "plan_key": f"imported {given.identity}",
        "command": given.info.command,
        "axes": given.info.axes,
        "started": given.info.started,
        "finished": given.info.finished or given.info.started,
        "tracking": {"enabled": True, "uri": None, "experiment": "ane-sweep", "ui": None},
        "imported": {"identity": given.identity, "host": given.manifest.host, "sweep": given.manifest.sweep},
    }

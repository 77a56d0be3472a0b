"""Import bundles into an outputs folder: each sweep once, however often and in any order its exports arrive."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

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
    """The result of an import: the run's folder, its future content, and numbers of records that are new, replaced or known.

    replaced   records that a later export changed
    disputed   records that differ from those in the folder, of an export that ended at the same moment: see `_rank`
    records    all records that the folder will hold; empty if the folder does not change
    """

    folder: Path
    new: int
    replaced: int
    known: int
    disputed: int = 0
    records: list[Record] = field(default_factory=list)
    info: dict[str, object] = field(default_factory=dict)
    drift: Drift | None = None


def take_in(given: Bundle, out: Path) -> Merged:
    """Import a bundle's records for `report`, `compare` and `log`, and write their report.

    The report is made before anything is written: records that cannot be reported are not imported.
    """
    merged = merge(given, out)
    if merged.records:
        texts = page.texts(Sweep(merged.records, merged.info, merged.drift))
        write(merged)
        page.put(merged.folder, texts)
    return merged


def merge(given: Bundle, out: Path) -> Merged:
    """Return the result of merging a bundle into an outputs folder, without writing it.

    The same sweep of the same machine is merged into the run of its earlier import, or into the run that was exported;
    another machine's sweep with the same stamp gets a new name.
    """
    folder = _own_run(given, out) or _imported_run(given, out)
    before = {record.cell_key: record for record in read_records(folder)} if (folder / FILE_NAME).exists() else {}
    there, there_drift = disk.read_json(folder / bundle.RUN) or {}, drift.read(folder)
    if before and not _is_half(folder) and not there.get("imported"):
        return Merged(folder, 0, 0, len(given.records))  # the original: it knows more than its own export
    for record in given.records:
        record.sweep = folder.name
    arrived = {record.cell_key: record for record in given.records}
    ended, ended_there = _moment(given.info.finished or given.info.started), _moment(there.get("finished"))
    if ended < ended_there:
        after, info, found = arrived | before, there, there_drift
    elif ended > ended_there:
        after, info, found = before | arrived, _info(given, folder), given.drift or there_drift
    else:
        # the better status decides, then the text, so that the order of arrival does not matter
        after = before | {key: max(before.get(key, record), record, key=_rank) for key, record in arrived.items()}
        info = there or _info(given, folder)
        found = max(filter(None, (given.drift, there_drift)), key=repr, default=None)
    differ = [key for key in arrived.keys() & before.keys() if arrived[key].to_json() != before[key].to_json()]
    new, replaced = len(arrived.keys() - before.keys()), sum(after[key] is arrived[key] for key in differ)
    disputed = len(differ) if ended == ended_there else 0
    known = len(arrived) - new - replaced
    return Merged(folder, new, replaced, known, disputed, list(after.values()), info | {"cells": len(after)}, found)


def write(merged: Merged) -> None:
    """Write records.jsonl, drift.json, and run.json last: without run.json the folder is not a run yet, and the import can be repeated."""
    write_records(merged.folder, merged.records)
    if merged.drift is not None:
        disk.write_json(merged.folder / bundle.DRIFT, msgspec.to_builtins(merged.drift))
    disk.write_json(merged.folder / bundle.RUN, merged.info)


def _rank(record: Record) -> tuple[int, str]:
    """Return what decides between two records of a cell whose exports ended at the same moment."""
    return -STATUSES.get(record.status, WORST), record.to_json()


def _moment(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


def _own_run(given: Bundle, out: Path) -> Path | None:
    """Return the run that the bundle was exported from, if that run is in this folder and ran on this machine."""
    folder = out / "runs" / given.manifest.sweep
    if not (out / bundle.SALT).exists() or not (folder / FILE_NAME).is_file():
        return None
    is_ours = not (disk.read_json(folder / bundle.RUN) or {}).get("imported")
    return folder if is_ours and bundle.host_id(out) == given.manifest.host else None


def _imported_run(given: Bundle, out: Path) -> Path:
    """Return the run of an earlier import of the same sweep, or the folder of a first one."""
    for run in runs.list_runs(out):
        if (run.info.get("imported") or {}).get("identity") == given.identity:
            return run.folder
    plain = out / "runs" / given.manifest.sweep
    is_free = not plain.exists() or _is_half(plain)
    return plain if is_free else plain.with_name(f"{plain.name}-{given.manifest.host[:8]}")


def _is_half(folder: Path) -> bool:
    """Return True for the remains of an interrupted import: neither run.json nor the tasks of a run made here."""
    return folder.is_dir() and not (folder / bundle.RUN).exists() and not (folder / "tasks").exists()


def _info(given: Bundle, folder: Path) -> dict[str, object]:
    """Return run.json of an imported sweep. Its plan key matches no plan, so no command ever resumes it."""
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

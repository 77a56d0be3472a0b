"""What a word of `ane-sweep compare` means: records of a run, of a file, or of the good nights; and which of their cells.

    WORD[:axis=value,...]    WORD is a run's name, `last`, `good`, or a path to a folder with records.jsonl, or to that file

`good` is, for each cell, its record of the newest run that is tagged good: a nightly with a budget measures a part of
its cells each night, so the last good night of two cells need not be the same one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ane_sweep import bridge, command, record, runs
from ane_sweep.errors import ConfigError, RunNotFound
from ane_sweep.record import Record, flat_cell

GOOD = "good"
TAGS_FILE = "tags.json"


@dataclass
class Side:
    """One side of a comparison; `chosen` are the axes that its selector fixed."""

    word: str
    records: list[Record]
    chosen: dict[str, str]


def side(out: Path, word: str) -> Side:
    """The records a word means. Raises RunNotFound, ConfigError."""
    name, _, filters = word.rpartition(":") if "=" in word.rpartition(":")[2] and ":" in word else (word, "", "")
    parts = [part.partition("=") for part in filters.split(",") if filters]
    if odd := [axis for axis, equals, _ in parts if not equals]:
        raise ConfigError(f"{word}: {odd[0]!r} chooses nothing; the form is {name}:axis=value,axis=value")
    chosen = {axis: value for axis, _, value in parts}
    records = _records(out, name)
    kept = [r for r in records if all(str(flat_cell(r).get(axis)) == value for axis, value in chosen.items())]
    if records and not kept:
        known = {axis: sorted({str(flat_cell(r).get(axis)) for r in records}) for axis in chosen}
        raise ConfigError(f"{word}: no cell there has {filters}; values there: {known}")
    return Side(word, kept, chosen)


def _records(out: Path, name: str) -> list[Record]:
    if name == GOOD:
        tagged = good_runs(out)
        if not tagged:
            raise RunNotFound(
                f"no run under {out / 'runs'} is tagged good yet; `ane-sweep nightly accept RUN` tags one"
            )
        return newest(record.read_records(out / "runs" / stamp) for stamp in reversed(tagged))
    path = command.user_path(name)
    if path.name == record.FILE_NAME and path.is_file():
        return record.read_records(path.parent)
    if (path / record.FILE_NAME).is_file():
        return record.read_records(path)
    return record.read_records(runs.find_run(out, name).folder)


def newest(oldest_first: Iterable[list[Record]]) -> list[Record]:
    """One record a cell, of the latest list that has one which was not skipped."""
    found: dict[str, Record] = {}
    for records in oldest_first:
        found |= {r.cell_key: r for r in records if r.status is not record.Status.SKIPPED}
    return list(found.values())


def good_runs(out: Path) -> list[str]:
    """Names of the runs that are tagged good and still there, newest first."""
    tags = (bridge.read_json(out / TAGS_FILE) or {}).get(GOOD, [])
    return sorted((s for s in tags if (out / "runs" / s / record.FILE_NAME).is_file()), reverse=True)


def tag_good(out: Path, stamp: str) -> None:
    """From now on `good` means this run, for the cells that it holds."""
    tags = bridge.read_json(out / TAGS_FILE) or {}
    bridge.write_json(out / TAGS_FILE, tags | {GOOD: sorted({*good_runs(out), stamp})})

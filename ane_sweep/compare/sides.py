"""The two sides of `ane-sweep compare`: each word names the records of a run, of a file, or of the good nights.

    WORD[:axis=value,...]    WORD is a run's name, `last`, `good`, or a path to a folder with records.jsonl, or to that file

`good` means, for each cell, its record of the newest run that is tagged good and in which the cell ran well, if
possible timed by enough processes for a test. The last good night may differ between cells: a nightly with a budget
measures a part of its cells each night, and a cell that failed is no baseline.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ane_sweep import folders
from ane_sweep.bridge import disk, record
from ane_sweep.bridge.kept import read
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.record import Record, Status, as_typed, flat_cell
from ane_sweep.errors import ConfigError, RunNotFound, suggestion
from ane_sweep.results.difference import figures_by_round
from ane_sweep.results.headline import answers_by_timing
from ane_sweep.results.pool import in_vain
from ane_sweep.stats.student import FEWEST
from ane_sweep.store import runs

FINE = (Status.OK, Status.DEGRADED)  # it ran where it was asked to, and its figures are its own
GOOD = "good"
TAGS_FILE = "tags.json"
_SELECTOR = re.compile(r"(.*?):([^:/=]*=.*)", re.DOTALL)
_COMMA = re.compile(r",(?![^\[]*\])")  # not one within a list, as cuts=[layer:2,layer:4]


@dataclass(frozen=True)
class Tags:
    """The content of tags.json: names of good runs, and by run the keys of the cells whose latency could not be tested there."""

    good: list[str] = field(default_factory=list)
    untested: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Side:
    """One side of a comparison; `chosen` are the axes that its selector fixed, named as in `flat_cell`."""

    word: str
    records: list[Record]
    chosen: Collection[str] = ()


def both(out: Path, first: str, second: str) -> tuple[Side, Side]:
    """Return the two sides. If the other side is a run, `good` leaves that run out, so that it is not compared with itself."""
    folders = [_folder(out, name) for name, _ in map(_parsed, (first, second))]
    fixed = [folder.resolve() for folder in folders if folder is not None]
    return side(out, first, without=fixed), side(out, second, without=fixed)


def side(out: Path, word: str, without: Collection[Path] = ()) -> Side:
    """Return the records that a word selects; `good` leaves out the runs in `without`. Raises RunNotFound, ConfigError."""
    name, typed = _parsed(word)
    folder = _folder(out, name)
    records = good_records(out, without) if folder is None else record.read_records(folder)
    kept = select_records(records, word)
    return Side(word, kept, {axis for record in kept for axis in flat_cell(record) if as_typed(axis) in typed})


def select_records(records: list[Record], word: str) -> list[Record]:
    """Return the records that RUN:axis=value,... selects. Raises ConfigError with the known values if it selects no record."""
    name, typed = _parsed(word)
    cells = [{as_typed(axis): format_value(value) for axis, value in flat_cell(record).items()} for record in records]
    kept = [r for r, cell in zip(records, cells) if all(cell.get(axis) == value for axis, value in typed.items())]
    if records and not kept:
        axes = sorted({axis for cell in cells for axis in cell})
        lacking = [f"no axis is called {axis}{suggestion(axis, axes)}" for axis in typed if axis not in axes]
        there = [
            f"{axis}={','.join(sorted({cell[axis] for cell in cells if axis in cell}))}"
            for axis in typed
            if axis in axes
        ]
        known = "; ".join([*lacking, *([f"there are: {'  '.join(there)}"] if there else [])])
        raise ConfigError(f"{word}: no cell there has {word[len(name) + 1 :]}; {known}")
    return kept


def _parsed(word: str) -> tuple[str, dict[str, str]]:
    """Parse RUN:axis=value,... to the run and the chosen value per axis; a path may contain a colon too. Raises ConfigError."""
    found = _SELECTOR.fullmatch(word)
    name, filters = found.groups() if found else (word, "")
    parts = [part.partition("=") for part in _COMMA.split(filters) if filters]
    if odd := [axis for axis, equals, _ in parts if not equals]:
        raise ConfigError(f"{word}: {odd[0]!r} chooses nothing; the form is {name}:axis=value,axis=value")
    return name, {axis: value for axis, _, value in parts}


def _folder(out: Path, name: str) -> Path | None:
    """Return the folder of the records that a name means, or None for `good`, which has several."""
    if name == GOOD:
        return None
    path = folders.user_path(name)
    if path.name == record.FILE_NAME and path.is_file():
        return path.parent
    return path if (path / record.FILE_NAME).is_file() else runs.find_run(out, name).folder


def good_records(out: Path, without: Collection[Path] = ()) -> list[Record]:
    """Return each cell's baseline: its record of the newest good run in which it ran well. Raises RunNotFound."""
    if not good_runs(out):
        raise RunNotFound(f"no run under {out / 'runs'} is tagged good yet; `ane-sweep nightly accept RUN` tags one")
    if not (nights := good_nights(out, without)):
        raise RunNotFound(f"under {out / 'runs'} no other run that can be read is good: there is none to compare with")
    return newest(nights)


def newest(nights: Iterable[list[Record]]) -> list[Record]:
    """Return one record per cell from nights in order of age: the newest one with a testable timing, else the newest one."""
    records = [one for night in nights for one in night]
    newest_of_all = {one.cell_key: one for one in records}
    return list((newest_of_all | {one.cell_key: one for one in records if is_testable(one)}).values())


def good_nights(out: Path, without: Collection[Path] = ()) -> list[list[Record]]:
    """Return the baseline records of each good run, oldest first; a run that cannot be read is left out with a message."""
    untested = _tags(out).untested
    nights = []
    for stamp in reversed(good_runs(out)):
        folder = out / "runs" / stamp
        records = None if folder.resolve() in without else record.kept_records(folder)
        if records is not None:
            nights.append([one for one in records if is_level(one) and one.cell_key not in untested.get(stamp, ())])
    return nights


def is_level(one: Record) -> bool:
    """Return True if a record may be a baseline: the cell ran, and its latency was not timed while the machine was busy
    or hot.

    A cell that is always degraded, such as a coarse precision under its PSNR gate, has no better baseline.
    """
    return one.status in FINE and not (answers_by_timing(one) and in_vain(one.timings))


def is_testable(one: Record) -> bool:
    """Return True if enough processes timed the cell for a test of its latency, or if its latency needs none: an estimate."""
    return not answers_by_timing(one) or len(figures_by_round(one.timings, "median_ms")) >= FEWEST


def good_runs(out: Path) -> list[str]:
    """Return the names of the runs that are tagged good and still exist, newest first."""
    tags = _tags(out).good
    return [r.stamp for r in runs.list_runs(out) if r.stamp in tags and (r.folder / record.FILE_NAME).is_file()]


def tag_good(out: Path, stamp: str, untested: Collection[str] = ()) -> None:
    """Tag a run as good: the baseline of the cells that ran well in it, except those in `untested`."""
    good = list(dict.fromkeys([*good_runs(out), stamp]))
    kept = {run: cells for run, cells in _tags(out).untested.items() if run in good and run != stamp}
    disk.write_json(out / TAGS_FILE, vars(Tags(good, kept | ({stamp: sorted(untested)} if untested else {}))))


def _tags(out: Path) -> Tags:
    return read(out / TAGS_FILE, Tags, "no run counts as good; `ane-sweep nightly accept RUN` tags one") or Tags()

"""Checks of imported data: all of a bundle is checked once, before any part of it is used or written.

    parse_json  text -> JSON value, no deeper, longer or larger than anything that a sweep writes
    read        a JSON value -> a Manifest, a Run, a Drift
    record      a line of records.jsonl -> a Record: the types of our own records, and limits that every sweep keeps

All functions raise StoreError, which names the place and the fault.
"""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from ane_sweep.bridge import conversion, disk
from ane_sweep.bridge.record import File, Record
from ane_sweep.errors import StoreError
from ane_sweep.placement.types import Count, Name

DEEPEST, LONGEST_TEXT, LONGEST_NAME = 32, 100_000, 500
LARGEST = 1e30  # of a number's magnitude; whole numbers fit into 64 bits
AHEAD = timedelta(days=1)  # clocks and time zones that are wrong by more than that are no dates to sort by
EARLIEST = datetime(2020, 1, 1, tzinfo=UTC)
T = TypeVar("T")


def parse_json(text: str) -> object:
    """Parse a strict JSON text. Raises StoreError for other text, or text beyond the limits of this module."""
    try:
        value: object = json.loads(text, parse_constant=disk.no_constant)
    except RecursionError:
        raise StoreError(f"it is nested deeper than {DEEPEST} levels") from None
    except ValueError as error:
        raise StoreError(f"it is not JSON: {str(error)[:200]}") from error
    level = [value]
    for _ in range(DEEPEST):
        if not level:
            return value
        level = [part for whole in level for part in _parts(whole)]
    raise StoreError(f"it is nested deeper than {DEEPEST} levels")


def _parts(value: object) -> list[object]:
    """Return the values inside a dict or list. Raises StoreError if the value is beyond the limits."""
    if isinstance(value, dict):
        for name in value:
            _check_text(name, LONGEST_NAME)
        return list(value.values())
    if isinstance(value, list):
        return value
    if isinstance(value, str):
        _check_text(value, LONGEST_TEXT)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise StoreError(f"it holds a whole number of {value.bit_length()} bits")
    elif isinstance(value, float) and not (math.isfinite(value) and abs(value) <= LARGEST):
        raise StoreError(f"it holds the number {value:g}")
    return []


def _check_text(text: str, most: int) -> None:
    if len(text) > most:
        raise StoreError(f"it holds a text of {len(text)} characters ({text[:20]!r} ...), and {most} are the most")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise StoreError(f"it holds half a character: {text[:40]!r}") from None


class Request(TypedDict, total=False):
    """The fields of a record's `cell` that later code relies on."""

    family: str
    size: str
    chunks: Count | str
    latency: dict[str, object]
    model_options: dict[str, object]
    precision_options: dict[str, object]


class Asked(Request):
    model: Name


class Host(TypedDict, total=False):
    """The fields of a record's `host` that later code relies on."""

    chip: str | None
    stand_in: str | None
    power: str | None


class Mappings(TypedDict):
    """The parts of a record that may have further fields, which no code reads."""

    cell: Asked
    host: Host


@dataclass(frozen=True)
class Part:
    """A file of a bundle."""

    name: Name
    bytes: Count
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


@dataclass(frozen=True)
class Manifest:
    """manifest.json of a bundle; its format and schema are checked first."""

    sweep: File
    host: File
    records: Count
    files: Annotated[list[Part], Meta(max_length=16)]
    finished: str | None = None


@dataclass(frozen=True)
class Run:
    """run.json of a bundle."""

    started: str
    finished: str | None = None
    command: list[str] | None = None
    axes: list[str] | None = None
    cells: Count | None = None

    def __post_init__(self) -> None:
        _check_moment("started", self.started)
        if self.finished is not None:
            _check_moment("finished", self.finished)


def record(plain: object, where: str) -> Record:
    """Convert a parsed line to a Record. Raises StoreError if no sweep can have written it."""
    found = Record.from_dict(plain, where)  # its own words for another schema
    read(Mappings, {"cell": found.cell, "host": found.host})
    for metric in found.metrics:
        if (metric.value or 0) < 0 and metric.name.endswith(("_ms", "_s", "_bytes")):
            raise StoreError(f"{metric.name} is below 0")
    known = [metric.what for metric in found.metrics]
    if twice := next((what for what in known if known.count(what) > 1), None):
        raise StoreError(f"{twice[0]} stands there twice: {' '.join(filter(None, twice[1:]))}")
    if any(entry.chip is None for entry in found.placed("predicted")):
        raise StoreError("placement is predicted for no chip")
    for path in (artifact.path for artifact in found.artifacts):
        if not path.startswith(".../") or "/" in path[4:] or "\0" in path:
            raise StoreError(f"{path[:80]!r} is no path that an export cut: nothing on this machine lies there")
    return found


def read(kind: type[T], value: object) -> T:
    """Convert a JSON value to a type. Raises StoreError if it does not fit, with place and fault: `metrics[0].value: Expected ...`."""
    try:
        return conversion.convert(value, kind)
    except msgspec.ValidationError as error:
        fault, _, place = str(error).partition(" - at `$")
        place = place.rstrip("`").lstrip(".")
        words = f"{place[:200]}: {fault[:200]}" if place else fault[:200]
        raise StoreError(f"{words}; no sweep writes that") from error


def _check_moment(name: str, text: str) -> None:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{name} is a date without a time zone")
    if not EARLIEST <= moment <= datetime.now(UTC) + AHEAD:
        raise ValueError(f"{name} is no date that a sweep can have by now")

"""One record per cell: the contract between runner, tracker, report and users' scripts.

A sweep leaves `outputs/runs/<stamp>/records.jsonl`, one strict JSON object a line, versioned by `schema`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ane_sweep.bridge import conversion, disk, kept
from ane_sweep.bridge.figures import Artifact, Metric, Timing, as_plain
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.metrics import RECORDED, is_recorded
from ane_sweep.bridge.task import DRAWN, Realised
from ane_sweep.errors import ConfigError, RunNotFound, StoreError, suggestion
from ane_sweep.outward import make_public, map_texts, mask_credentials
from ane_sweep.placement.types import Count, Kind, Placement
from ane_sweep.terminal import make_finite

SCHEMA = 1
FILE_NAME = "records.jsonl"
DIGEST = "digest"  # of each line there: sha256 of the record's other fields as JSON with sorted keys
File = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][\w.-]{0,120}\Z")]  # a name that a folder can have
Key = Annotated[str, Meta(pattern=r"^[\w-]{1,128}\Z")]


class Status(StrEnum):
    """The status of a cell. A `degraded` cell ran, with a warning; a `fallback` cell ran on another unit than the requested one."""

    OK = "ok"
    DEGRADED = "degraded"
    FALLBACK = "fallback"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    BLOCKED = "blocked"
    REFUSED = "refused"
    SKIPPED = "skipped"


class StageStatus(StrEnum):
    """The status of one stage of a cell. With `unavailable`, this host cannot run the stage, and the cell is still ok."""

    OK = "ok"
    CACHED = "cached"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    BLOCKED = "blocked"
    SKIPPED = "skipped"


@dataclass
class StageOutcome:
    """The outcome of one stage for a cell; every cell that used the same task has the same `key`.

    seconds  wall time of the process that did the work, null when it did not run
    exit     exit code of that process, or the name of the signal that ended it
    """

    stage: Annotated[str, Meta(pattern=r"^[a-z_]{1,40}\Z")]
    status: StageStatus
    reason: str | None = None
    seconds: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    peak_bytes: Count | None = None
    exit: int | str | None = None
    key: Key | None = None


@dataclass(frozen=True)
class Weights:
    """The origin of a cell's weights: `kind` is pretrained, path, random, or own (a given module's own code)."""

    kind: str | None = None
    source: str | None = None
    digest: str | None = None


@dataclass
class Record:
    """All facts about one cell: `cell` is the request, `realised` what really happened.

    timings  one entry for each process that timed the cell; pool.py combines them into metrics
    """

    sweep: File
    cell_key: Key
    cell: dict[str, Any]
    status: Status
    reason: str | None = None
    stages: list[StageOutcome] = field(default_factory=list)
    realised: Realised = field(default_factory=Realised)
    metrics: list[Metric] = field(default_factory=list)
    placement: list[Placement] = field(default_factory=list)
    weights: Weights = Weights()
    host: dict[str, Any] = field(default_factory=dict)
    toolchain: dict[str, str | None] = field(default_factory=dict)
    artifacts: list[Artifact] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    schema: int = SCHEMA

    def value(self, name: str, kind: Kind = "measured", chip: str | None = None) -> float | None:
        """Return the value of a metric, or None if the record lacks it.

        Raises ConfigError for a name that no record has.
        """
        found = self.read(name, kind, chip)
        own = dict.fromkeys(metric.name for metric in self.metrics)
        if found is None and name not in own and not is_recorded(name):
            known = own or dict.fromkeys(sorted(RECORDED))
            raise ConfigError(f"{name}: no figure has that name{suggestion(name, known)}; known: {', '.join(known)}")
        return found

    def read(self, name: str, kind: Kind = "measured", chip: str | None = None) -> float | None:
        """Return the value of a metric, known to us or not, or None if the record lacks it."""
        found = self.metric(name, kind, chip)
        return None if found is None else found.value

    def metric(self, name: str, kind: Kind = "measured", chip: str | None = None) -> Metric | None:
        """Return the metric with that name, kind and chip, or None."""
        return next((metric for metric in self.metrics if metric.what == (name, kind, chip)), None)

    def placed(self, kind: Kind) -> Iterator[Placement]:
        """Return the record's placements of one kind."""
        return (entry for entry in self.placement if entry.kind == kind)

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain JSON values, `schema` first, with passwords and tokens masked.

        Numbers that are not finite become null, so that one odd value does not cost the sweep its records.
        """
        plain = {"schema": self.schema, **msgspec.to_builtins({**vars(self), "placement": [], "timings": []})}
        plain["placement"] = [as_plain(entry) for entry in self.placement]
        plain["timings"] = [as_plain(entry) for entry in self.timings]
        return {name: make_finite(value, mask_credentials) for name, value in plain.items()}

    def to_json(self) -> str:
        """Return the record as one line of strict JSON that includes its digest."""
        plain = self.to_dict()
        return json.dumps({**plain, DIGEST: _digest(plain)}, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_dict(cls, plain: object, where: str = "record") -> "Record":
        """Build a record from the dict that `to_dict` returned. Raises StoreError on a newer schema, an unknown status
        or a missing field.

        Fields that this version does not know are left out: a later version may add some within one schema.
        """
        if not isinstance(plain, dict) or not isinstance(plain.get("schema"), int):
            raise StoreError(f"{where} is no record of ane-sweep: it has no `schema` number")
        if plain["schema"] > SCHEMA:
            raise StoreError(
                f"{where} has schema {plain['schema']}, this ane-sweep reads up to {SCHEMA}: "
                "it was written by a newer version, update ane-sweep to read it"
            )
        try:
            found = conversion.convert(plain, cls)
            found.realised = conversion.check(plain.get("realised", {}), Realised)
        except msgspec.ValidationError as error:
            raise StoreError(f"{where} cannot be read as a record: {error}") from error
        return found

    @classmethod
    def from_json(cls, text: str, where: str = "record") -> "Record":
        """Build a record from a line that `to_json` returned; NaN and Infinity, which are not JSON, are errors too."""
        return cls.from_dict(_parse(text, where), where)


def read_records(run_folder: Path) -> list[Record]:
    """Return all records of one sweep in file order. Raises RunNotFound if the file is absent, StoreError with the
    number of a bad line.
    """
    path = Path(run_folder) / FILE_NAME
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        places = {f"line {n} of {path}": line for n, line in enumerate(lines, 1) if line.strip()}
        plain = {where: _parse(line, where) for where, line in places.items()}
        found = [Record.from_dict(one, where) for where, one in plain.items()]
        _check_digests({where: one for where, one in plain.items() if isinstance(one, dict)})
    except FileNotFoundError:
        raise RunNotFound(f"no {FILE_NAME} in {run_folder}: this sweep has not finished a cell yet") from None
    except (UnicodeDecodeError, StoreError) as error:
        wrong = f"{path} is no UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise StoreError(f"{wrong}; {_remedy(path)}") from None
    if not found:
        raise StoreError(f"{path} is empty; {_remedy(path)}")
    return found


def _parse(line: str, where: str) -> object:
    try:
        return json.loads(line, parse_constant=disk.no_constant)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{where} is not JSON: {error}") from error


def _check_digests(lines: Mapping[str, dict[str, object]]) -> None:
    """Compare each parsed line (place -> value) with the digest that it contains. Raises StoreError for a line that was
    changed.

    A file without digests is from an earlier version: it is read, with a warning.
    """
    if lines and not any(DIGEST in plain for plain in lines.values()):
        kept.tell("records of an earlier version have no digests: damage to them would not be noticed")
        return
    for where, plain in lines.items():
        if plain.get(DIGEST) != _digest({name: value for name, value in plain.items() if name != DIGEST}):
            raise StoreError(f"{where} was changed since it was written: its digest does not fit")


def _digest(plain: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _remedy(path: Path) -> str:
    return f"a damaged file is made again by the sweep's own command with resume={path.parent.name}"


def kept_records(run_folder: Path) -> list[Record] | None:
    """Return the records of one of our runs, or None if the file is absent or damaged; a damaged file prints one warning."""
    try:
        return read_records(run_folder)
    except RunNotFound:
        return None
    except StoreError as error:
        kept.tell(str(error))
        return None


def write_records(run_folder: Path, records: Iterable[Record]) -> Path:
    """Replace records.jsonl atomically, so that a reader never sees half of it."""
    folder = Path(run_folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(record.to_json() + "\n" for record in records)
    with disk.replace_file(folder / FILE_NAME) as aside:
        aside.write_text(text, encoding="utf-8", errors="backslashreplace")  # a path's bytes that are no text: \\udcXX
    return folder / FILE_NAME


def map_record_texts(records: Iterable[Record], say: Callable[[str], str] = make_public) -> list[Record]:
    """Return copies of the records with `say` applied to every text, which masks secrets and escapes control characters."""
    return [Record.from_dict(map_texts(record.to_dict(), say)) for record in records]


def has_random_weights(record: Record) -> bool:
    """Return True if any weights are random: requested so, or drawn by the code of the user's own module."""
    return record.weights.kind == "random" or DRAWN in record.realised


def worst_psnr(record: Record) -> float | None:
    """Return the PSNR in dB of the worst output, or of the program if it has only one output; None if not recorded."""
    worst = record.value("psnr_worst_db")
    return record.value("psnr_db") if worst is None else worst


def flat_cell(record: Record) -> dict[str, object]:
    """Return the request of a record with nested options as dotted keys: {"model": "gpt2", "policy.samples": 50}."""
    return flat_request(record.cell)


def flat_request(request: dict[str, object], prefix: str = "") -> dict[str, object]:
    """Return a request (`Cell.as_dict`, or `Record.cell`) with nested options as dotted keys, each after `prefix`."""
    flat: dict[str, object] = {}
    for key, value in request.items():
        if isinstance(value, dict) and value:
            flat |= flat_request(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def as_typed(name: str) -> str:
    """Return a name of `flat_cell` as the command line has it: `model_options.texts.count` becomes `model.texts.count`."""
    group, dot, rest = name.partition("_options.")
    return f"{group}.{rest}" if dot and group in ("model", "precision") else name


def select_by(request: dict[str, object], axes: Iterable[str]) -> str:
    """Return the words that select a flat request behind a run's name: `variant=original,chunks=2`."""
    return ",".join(f"{as_typed(axis)}={format_value(request[axis])}" for axis in axes if axis in request)


def varying_axes(records: list[Record]) -> list[str]:
    """Return the names of the axes that differ between these records, in the request's order."""
    return varying_names([flat_cell(record) for record in records])


def varying_names(cells: list[dict[str, object]]) -> list[str]:
    """Return the names of axes that differ between flat requests; together they distinguish any two different requests.

    An option that the model determines (`family`, `size`), or that another varying axis determines, is left out. A
    missing key counts as a value.
    """
    names = list(dict.fromkeys(key for cell in cells for key in cell))
    varying = [name for name in names if _varies([cell.get(name) for cell in cells])]
    values = {key: [_hashable(cell.get(key)) for cell in cells] for key in (*varying, "family", "size") if key in names}
    if "model" in varying:
        told = {name for name in ("family", "size") if name in values and _follows(values[name], values["model"])}
        varying = [name for name in varying if name not in told]
    plain = [name for name in varying if "." not in name]
    return [n for n in varying if n in plain or not any(_follows(values[n], values[axis]) for axis in plain)]


def _varies(values: list[object]) -> bool:
    first = values[0]
    if isinstance(first, (dict, list)):
        return len(set(map(_hashable, values))) > 1
    return any(value is not first and (type(value) is not type(first) or value != first) for value in values)


def _follows(dependent: list[tuple[str, object]], axis: list[tuple[str, object]]) -> bool:
    return len(set(zip(axis, dependent))) == len(set(axis))


def _hashable(value: object) -> tuple[str, object]:
    nested = isinstance(value, (dict, list))
    return type(value).__name__, json.dumps(value, sort_keys=True, default=str) if nested else value

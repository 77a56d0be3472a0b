"""The form of what arrives from elsewhere: checked once, whole, before anything of it is used or written.

    parsed   text -> JSON value, no deeper, longer or larger than anything that a sweep writes
    check    that value against a form: Manifest, Run, Cell, Drift, what a bundle is made of. Every field that reports,
             comparisons, histories and trackers rely on has the type that they rely on; one that this version does not
             know may be any JSON value

Both raise StoreError, which says where and what. Records of our own disk are read without this.
"""

import json
import math
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any, Literal, Required

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from ane_sweep.errors import StoreError
from ane_sweep.record import KINDS, StageStatus, Status

DEEPEST, LONGEST_TEXT, LONGEST_NAME = 32, 100_000, 500
LARGEST = 1e30  # of a number's magnitude; whole numbers fit into 64 bits
AHEAD = timedelta(days=1)  # clocks and time zones that are wrong by more than that are no dates to sort by
EARLIEST = datetime(2020, 1, 1, tzinfo=UTC)


def parsed(text: str) -> Any:
    """Strict JSON."""
    try:
        value = json.loads(text, parse_constant=_no_number)
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


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON value")


def _parts(value: Any) -> list[Any]:
    """What a value holds. Raises StoreError where the value itself is beyond the limits."""
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


def _is_cut(path: str) -> str:
    if not path.startswith(".../") or "/" in path[4:] or "\0" in path:
        raise ValueError("is no path that an export cut: nothing on this machine lies there")
    return path


def _is_moment(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("is a date without a time zone")
    if not EARLIEST <= moment <= datetime.now(UTC) + AHEAD:
        raise ValueError("is no date that a sweep can have by now")
    return text


def _has_sense(metric: dict[str, Any]) -> dict[str, Any]:
    if (metric["value"] or 0) < 0 and metric["name"].endswith(("_ms", "_s", "_bytes")):
        raise ValueError(f"{metric['name']} is below 0")
    return metric


def _has_chip(entry: dict[str, Any]) -> dict[str, Any]:
    if entry["kind"] == "predicted" and entry["chip"] is None:
        raise ValueError("is predicted for no chip")
    return entry


Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
File = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]{0,120}$")]  # a name that a folder can have
Key = Annotated[str, StringConstraints(pattern=r"^[\w-]{1,128}$")]
Moment = Annotated[str, AfterValidator(_is_moment)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Kind = Literal[KINDS]  # type: ignore[valid-type]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Open(TypedDict):
    """A form that may hold more than it names."""

    __pydantic_config__ = ConfigDict(strict=True, extra="allow")  # type: ignore[misc]


class Stage(Open, total=False):
    stage: Required[Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]]
    status: Required[Literal[tuple(map(str, StageStatus))]]  # type: ignore[valid-type]
    reason: str | None
    seconds: Annotated[float, Field(ge=0, le=1e9)] | None
    peak_bytes: Count | None
    exit: int | str | None
    key: Key | None


class Metric(Open, total=False):
    name: Required[Name]
    value: Required[Number | None]
    nonfinite: Literal["inf", "-inf", "nan"] | None
    kind: Kind
    unit: str | None
    source: str | None
    chip: Name | None


class Ops(Open, total=False):
    cpu: Required[Count]
    gpu: Required[Count]
    ane: Required[Count]
    total: Required[Count]


class Placement(Open, total=False):
    kind: Required[Kind]
    chip: Required[Name | None]
    ops: Required[Ops]
    compute_units: str | None
    function: str | None
    cost_share: dict[str, Number | None] | None
    segments: Count | None
    transitions: Count | None
    chunks: list[dict[str, Any]] | None
    reasons: list[dict[str, Any]] | None
    advice: list[str] | None


class Request(Open, total=False):
    model: Required[Name]
    family: str
    size: str
    chunks: Count | str
    latency: dict[str, Any]
    model_options: dict[str, Any]
    precision_options: dict[str, Any]


class Realised(Open, total=False):
    runtime: str | None
    compute_units: str | None
    chunks: Count | str | None
    texts: str | None
    latency_task: str | None
    unstable: str | None
    stand_in: str | None
    verdict: str | None
    observed: str | None
    verdict_reasons: list[str] | None
    evidence: dict[str, Any] | None


class Weights(Open, total=False):
    kind: str | None
    source: str | None
    digest: str | None


class Host(Open, total=False):
    chip: str | None
    stand_in: str | None
    power: str | None


class Artifact(Open, total=False):
    name: Required[Name]
    path: Required[Annotated[str, AfterValidator(_is_cut)]]
    bytes: Count | None
    sha256: str | None


class Gate(Open, total=False):
    doubts: list[str]


class Timing(Open, total=False):
    round: Required[Count]
    median_ms: Required[Positive]
    load_ms: NotNegative | None
    first_ms: NotNegative | None
    prefill_median_ms: NotNegative | None
    after_idle_ms: NotNegative | None
    warmup_ms: list[NotNegative] | None
    samples_ms: list[Positive] | None
    notes: list[str] | None
    gate: Gate | None


class Cell(Open, total=False):
    """A line of records.jsonl."""

    schema: Required[Count]
    sweep: Required[File]
    cell_key: Required[Key]
    cell: Required[Request]
    status: Required[Literal[tuple(map(str, Status))]]  # type: ignore[valid-type]
    reason: str | None
    stages: list[Stage]
    realised: Realised
    metrics: list[Annotated[Metric, AfterValidator(_has_sense)]]
    placement: list[Annotated[Placement, AfterValidator(_has_chip)]]
    weights: Weights
    host: Host
    toolchain: dict[str, str | None]
    artifacts: list[Artifact]
    timings: list[Timing]


class Part(Open):
    name: Name
    bytes: Count
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Manifest(Open, total=False):
    """manifest.json of a bundle; its format and schema are looked at first."""

    sweep: Required[File]
    host: Required[File]
    records: Required[Count]
    files: Required[Annotated[list[Part], Field(max_length=16)]]


class Run(Open, total=False):
    """run.json of a bundle."""

    started: Required[Moment]
    finished: Moment | None
    command: list[str] | None
    axes: list[str] | None
    cells: Count | None


class Op(Open, total=False):
    name: Required[str]
    type: Required[str]
    index: Required[Count]
    psnr_db: Required[Number]
    own: Required[Number | None]
    jump: Required[Number | None]
    drift: Required[Number | None]


class Drift(Open, total=False):
    """drift.json of a run."""

    model: Required[str]
    numerics: Required[str]
    psnr_db: Required[Number]
    values: Required[list[Annotated[list[Number], Field(min_length=2, max_length=2)]]]
    grown: Required[list[Op]]
    lossy: Required[list[Op]]
    blocks: Required[list[Op]]


def check(form: type, value: Any) -> None:
    """Raises StoreError where a value has another form."""
    try:
        _adapter(form).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        said = re.sub(r"^Value error, ", "", first["msg"])
        raise StoreError(f"{where[:200]}: {said[:200]}; no sweep writes that") from error


@cache
def _adapter(form: type) -> TypeAdapter[Any]:
    return TypeAdapter(form)

"""The figures of a result: metrics and timings, as tasks return them and records store them (placements:
placement/types.py).

Files of ours and files from elsewhere must all satisfy the constraints of the types. A field without a value is not
written (see `as_plain`); earlier versions also left out some that have a default.
"""

from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from msgspec import Meta

from ane_sweep.placement.types import Count, Kind, Name, Placement

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
_UNWRITTEN = {
    "advice", "at_shapes", "choice", "confidence", "flexible", "not_estimated", "unplaced", "function", "gates", "rule",
    "prefill_median_ms", "modules",
}  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """One figure. `source` names its origin (a runtime, a tool, a cost model), `chip` the chip that it holds for; None: this host."""

    name: Name
    value: int | float | None
    unit: str = ""
    kind: Kind = "measured"
    source: str | None = None
    chip: Name | None = None

    @property
    def what(self) -> tuple[str, str, str | None]:
        """Return the identity of the figure: two metrics with equal identities measure the same thing."""
        return self.name, self.kind, self.chip

    @property
    def label(self) -> str:
        """Return a name such as `measured.latency_median_ms` or `predicted.m4.ops_ane`; the kind in it keeps kinds apart."""
        return ".".join(part for part in (self.kind, self.chip, self.name) if part)


@dataclass(frozen=True)
class Look:
    """The machine's state before a timing: `in_vain` holds the warnings that were still true when the wait ended."""

    ready: bool = True
    waited_s: NotNegative = 0.0
    doubts: list[str] = field(default_factory=list)
    in_vain: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Timing:
    """The timing of a program by one process, in milliseconds a call.

    loops      number of calls that each entry of `samples_ms` averages
    notes      oddities of the samples (outliers, a trend)
    prefill_median_ms  median of a prefill call, with a key-value cache; the other figures are then of one decoding step
    """

    round: Count
    median_ms: Positive
    load_ms: NotNegative | None = None
    first_ms: NotNegative | None = None
    warmup_ms: list[NotNegative] = field(default_factory=list)
    samples_ms: list[Positive] = field(default_factory=list)
    loops: Count = 1
    after_idle_ms: NotNegative | None = None
    idle_s: NotNegative = 0.0
    notes: list[str] = field(default_factory=list)
    gate: Look | None = None
    prefill_median_ms: NotNegative | None = None


@dataclass(frozen=True)
class Artifact:
    """One file of a task's artifact; `name` is its path relative to the artifact."""

    name: Name
    path: str
    bytes: Count | None = None
    sha256: str | None = None


def as_plain(figure: Placement | Timing) -> dict[str, object]:
    """Return a figure as JSON values."""
    return _without_unset(msgspec.to_builtins(figure))


def _without_unset(plain: dict[str, object]) -> dict[str, object]:
    written: dict[str, object] = {}
    for name, value in plain.items():
        if isinstance(value, dict):
            written[name] = _without_unset(value)
        elif isinstance(value, list):
            written[name] = [_without_unset(one) if isinstance(one, dict) else one for one in value]
        elif value is not None or name not in _UNWRITTEN:
            written[name] = value
    return written

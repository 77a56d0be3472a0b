"""The figures of a result: metrics, placements and timings, as tasks give them and records keep them.

Their constraints are what every file of ours holds and every file from elsewhere must. A field that was never
written and has no value stays unwritten: see `as_plain`. Earlier versions left out some that have a default.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Kind = Literal["measured", "planned", "estimated", "predicted", "published"]
Unit = Literal["cpu", "gpu", "ane"]
Name = Annotated[str, Meta(min_length=1, max_length=500)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
_UNWRITTEN = {
    "advice", "at_shapes", "choice", "confidence", "flexible", "not_estimated", "unplaced", "function", "gates", "rule",
    "prefill_median_ms",
}  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """One figure. `source` names its origin (a runtime, a tool, a cost model), `chip` the chip that it is for; None: this host."""

    name: Name
    value: int | float | None
    unit: str = ""
    kind: Kind = "measured"
    source: str | None = None
    chip: Name | None = None

    @property
    def what(self) -> tuple[str, str, str | None]:
        """Return the identity of the figure: equal for two metrics that measure the same thing."""
        return self.name, self.kind, self.chip

    @property
    def label(self) -> str:
        """Return a name such as `measured.latency_median_ms` or `predicted.m4.ops_ane`, with its kind, so that kinds never mix."""
        return ".".join(part for part in (self.kind, self.chip, self.name) if part)


@dataclass(frozen=True)
class Ops:
    """The number of ops on each unit, and of all ops."""

    cpu: Count
    gpu: Count
    ane: Count
    total: Count

    def share(self, unit: Unit) -> float:
        """Return a unit's share of all ops, 0 to 1; 0 for a program without ops."""
        count: int = getattr(self, unit)
        return count / self.total if self.total else 0.0


@dataclass(frozen=True)
class Shares:
    """Shares of a cost by unit, 0 to 1."""

    cpu: float
    gpu: float
    ane: float


@dataclass(frozen=True)
class Gate:
    """A rule that decides for a whole program: `effect` is cpu (it leaves the Neural Engine), risk (its
    compiler may fail) or slow (weights of a size that streams slowly)."""

    gate: str
    effect: str
    reason: str
    advice: str
    source: str
    confidence: str


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One reason why ops are not on the Neural Engine: their number, types, share of the planner cost and some of their names."""

    rule: str | None = None
    reason: str
    ops: Count
    op_types: dict[str, int]
    cost_share: float
    names: list[str]
    source: str
    confidence: str | None = None


@dataclass(frozen=True)
class Part:
    """One program of a chain, or one function of it."""

    chunk: str | None
    ops: Ops
    cost_share: Shares
    segments: Count
    transitions: Count
    function: str | None = None
    gates: list[Gate] | None = None


# How `Placement.choice` begins where it is not predicted
CHOICE_UNKNOWN = "we cannot tell whether Core ML would choose the GPU"


@dataclass(frozen=True)
class Placement:
    """The units on which Core ML plans, or we predict, the ops of a program to run.

    segments       stretches of ops on one unit; transitions: changes between them
    flexible       inputs that take several shapes, whose programs are predicted at their default shape
    at_shapes      the same in short at each enumerated shape: ops, share of the cost, estimate
    not_estimated  why there is no latency estimate
    unplaced       ops for which Core ML's plan names no unit
    choice         of all units: why the GPU or the Neural Engine, or CHOICE_UNKNOWN and the reason
    """

    kind: Kind
    chip: Name | None
    compute_units: str
    ops: Ops
    cost_share: Shares
    segments: Count
    transitions: Count
    chunks: list[Part] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    advice: list[str] | None = None
    confidence: str | None = None
    flexible: list[dict[str, object]] | None = None
    at_shapes: list[dict[str, object]] | None = None
    not_estimated: str | None = None
    unplaced: Count | None = None
    function: str | None = None
    choice: str | None = None


@dataclass(frozen=True)
class Look:
    """The machine's state before a timing: `in_vain` holds the warnings that did not go away while the timing waited."""

    ready: bool = True
    waited_s: NotNegative = 0.0
    doubts: list[str] = field(default_factory=list)
    in_vain: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Timing:
    """The timing of a program by one process, in milliseconds a call.

    loops      calls that one of `samples_ms` is the mean of
    notes      what the samples give to think (outliers, a trend)
    prefill_median_ms  of a key-value cache, whose other figures are those of one decoding step
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
    """One file of a task's artifact; its name is relative to the artifact."""

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

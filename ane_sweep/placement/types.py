"""The placement of a program: its ops by unit, their shares of the cost, and the reasons and gates behind them.

Stored placements satisfy the constraints, and imported ones must.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

Kind = Literal["measured", "planned", "estimated", "predicted", "published"]
Unit = Literal["cpu", "gpu", "ane"]
Name = Annotated[str, Meta(min_length=1, max_length=500)]
Count = Annotated[int, Meta(ge=0)]


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
    """A limit on a whole program that it violates: `effect` is cpu (it leaves the Neural Engine), risk (its compiler
    may fail) or slow (weights of a size that streams slowly).
    """

    gate: str
    effect: str
    reason: str
    advice: str
    source: str
    confidence: str


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A reason why ops are not on the Neural Engine: their number, types, some names, and share of the planner cost."""

    rule: str | None = None
    reason: str
    ops: Count
    op_types: dict[str, int]
    cost_share: float
    names: list[str]
    source: str
    confidence: str | None = None


@dataclass(frozen=True)
class ModulePlace:
    """A torch module's part in a placement: its ops by unit and its share of the planner cost, modules inside included.

    depth: how many of the modules listed before contain it; alike: the number of equal modules (`layer.0-5` is 6);
    line: class, file and line, if noted at conversion.
    """

    path: Name
    depth: Count
    ops: Ops
    cost_share: float
    alike: Count = 1
    line: str | None = None


@dataclass(frozen=True)
class ModuleChange:
    """A torch module in two programs: its ops by unit, and its planner cost as a share of the first program's whole cost."""

    path: str
    depth: int
    before: Ops
    after: Ops
    cost_before: float
    cost_after: float
    alike: int = 1


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
    at_shapes      a short form for each enumerated shape: ops, share of the cost, estimate
    not_estimated  why there is no latency estimate
    hand_over_ms   the part of the latency estimate that hand-overs between chunks cost
    unplaced       ops for which Core ML's plan names no unit
    modules        the torch modules that cost most or keep most ops off the Neural Engine, as a tree in program order
    choice         with all units allowed: the reason for the GPU or the Neural Engine, or CHOICE_UNKNOWN and the reason
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
    flexible: list[dict[str, Any]] | None = None
    at_shapes: list[dict[str, Any]] | None = None
    not_estimated: str | None = None
    unplaced: Count | None = None
    function: str | None = None
    choice: str | None = None
    hand_over_ms: float | None = None
    modules: list[ModulePlace] | None = None

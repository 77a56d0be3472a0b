"""The predicted rows of a program, one per op, and the counts and shares computed from them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ane_sweep.placement.legality import UNITS, Verdict
from ane_sweep.placement.sites import Site
from ane_sweep.placement.types import Ops, Shares


@dataclass(slots=True)
class OpRow:
    """One op: the units that it may run on, the unit that it is expected to run on, and why."""

    site: Site
    chunk: str
    verdict: Verdict
    cpu_ms: float
    ane_ms: float | None
    preferred: str = "cpu"
    reason: str = ""
    confidence: str = "medium"

    @property
    def ms(self) -> float:
        return self.ane_ms if self.preferred == "ane" and self.ane_ms is not None else self.cpu_ms


def count_ops(rows: Sequence[OpRow]) -> Ops:
    counted = Counter(row.preferred for row in rows)
    return Ops(**{unit: counted[unit] for unit in UNITS}, total=len(rows))


def cost_share(rows: Sequence[OpRow]) -> Shares:
    """Return each unit's share of the planner cost: the sum of the ops' prices in Core ML's planner (costs.py), which
    is not a time.

    The GPU's ops count at the CPU's price, as they have none of their own.
    """
    total = sum(row.ms for row in rows)
    shares = {unit: sum(row.ms for row in rows if row.preferred == unit) for unit in UNITS}
    return Shares(**{unit: round(ms / total, 6) if total else 0.0 for unit, ms in shares.items()})


def count_text(number: int, thing: str) -> str:
    """Return `1 op`, `4 ops`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def name_types(counts: Iterable[tuple[str, int]]) -> str:
    """Return the first four types of ops with their numbers: `4 cast, 1 topk`."""
    return ", ".join(f"{count} {kind}" for kind, count in islice(counts, 4))


def plan_agreement(predicted: Sequence[Mapping[str, object]], planned: Sequence[Mapping[str, object]]) -> float | None:
    """Return the share of ops with the same unit in a prediction and in Core ML's plan: the metric `plan_agreement`.

    Rows are in file order, chunk by chunk, each with `op_type` and `preferred`. Return None if the ops differ, as the
    compiler may have rewritten the program.
    """
    if not predicted or [row["op_type"] for row in predicted] != [row["op_type"] for row in planned]:
        return None
    return sum(one["preferred"] == other["preferred"] for one, other in zip(predicted, planned)) / len(predicted)

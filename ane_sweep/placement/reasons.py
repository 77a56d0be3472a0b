"""Reasons why ops are off the Neural Engine: one for each op, and the list of a record."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ane_sweep.bridge.figures import Reason
from ane_sweep.placement import path

STAYS = "the ANE takes it, but"  # how the reason of an op begins that the path leaves on the CPU
_LEAST_MS = 5e-4


@dataclass
class _Stretch:
    """Neighbouring ops that stay on the CPU although the Neural Engine takes them; `is_first`: a function begins with them."""

    is_first: bool
    rows: list[Any] = field(default_factory=list)

    @property
    def saved_ms(self) -> float:
        return sum(row.cpu_ms - row.ane_ms for row in self.rows)

    @property
    def cost_ms(self) -> float:
        """Return the cost in ms of going to the Neural Engine and back."""
        return path.LAUNCH_MS + path.SWITCH_MS + (0.0 if self.is_first else path.SWITCH_MS)


def explain_stays(rows: Sequence[Any]) -> None:
    """Set the reason of ops that the Neural Engine takes and that stay on the CPU. `rows` are predict.OpRow of a function."""
    for stretch in _stretches(rows):
        reason = _reason([stretch])
        for row in stretch.rows:
            row.reason = row.reason or reason


def list_reasons(rows: Sequence[Any]) -> list[Reason]:
    """Return the reasons, most costly first, each with the ops that it is about. `rows` are predict.OpRow of all chunks."""
    total = sum(row.ms for row in rows) or 1.0
    groups: dict[tuple[str | None, str], list[Any]] = defaultdict(list)
    for row in rows:
        if row.preferred != "ane":
            groups[_key(row)].append(row)
    stays = [one for one in _stretches(rows) if one.rows[0].reason.startswith(STAYS)]
    found = []
    for (rule, reason), members in groups.items():
        first = members[0]
        found.append(
            Reason(
                rule=rule, reason=_reason(stays) if reason == STAYS else _example(members), ops=len(members),
                op_types=dict(Counter(row.site.type for row in members).most_common()),
                cost_share=round(sum(row.ms for row in members) / total, 6),
                names=[row.site.name for row in members[:5]], source=first.verdict.source or "cost model (751K, M4)",
                confidence=first.confidence,
            )
        )  # fmt: skip
    return sorted(found, key=lambda entry: (-entry.cost_share, entry.rule or "", entry.reason))


def _key(row: Any) -> tuple[str | None, str]:
    """Return (rule, reason) that a record's entry is about; texts of one rule differ by the shapes in them."""
    if row.reason == row.verdict.reason:
        return row.verdict.rule, ""
    return ("path", STAYS) if row.reason.startswith(STAYS) else (None, row.reason)


def _example(members: Sequence[Any]) -> str:
    others = len({row.reason for row in members}) - 1
    return members[0].reason + (f" (and {others} more like it)" if others else "")


def _stretches(rows: Sequence[Any]) -> list[_Stretch]:
    found: list[_Stretch] = []
    before = None
    for row in rows:
        is_first = before is None or (before.chunk, before.site.function) != (row.chunk, row.site.function)
        if _stays(row):
            if is_first or not _stays(before):
                found.append(_Stretch(is_first))
            found[-1].rows.append(row)
        before = row
    return found


def _stays(row: Any) -> bool:
    return row.preferred == "cpu" and row.ane_ms is not None and not row.site.nested


def _reason(stretches: Sequence[_Stretch]) -> str:
    count, saved = sum(len(one.rows) for one in stretches), sum(one.saved_ms for one in stretches)
    ops = "this op" if count == 1 else f"these {count} ops"
    where = f" in {len(stretches)} places" if len(stretches) > 1 else ""
    gain = f"would save {saved:.3f} ms on {ops}{where}" if saved >= _LEAST_MS else f"saves nothing on {ops}{where}"
    return f"{STAYS} {gain}; going there costs {sum(one.cost_ms for one in stretches):.3f} ms"

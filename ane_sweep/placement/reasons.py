"""Reasons why ops are off the Neural Engine: one for each op, and the list of a record."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ane_sweep.placement import path
from ane_sweep.placement.rows import OpRow
from ane_sweep.placement.types import Reason

STAYS = "the ANE takes it, but"  # how the reason of an op begins that the path leaves on the CPU
_LEAST_MS = 5e-4


@dataclass
class _Stretch:
    """Neighbouring ops that stay on the CPU although the Neural Engine takes them; `is_first`: a function begins with them."""

    is_first: bool
    rows: list[OpRow]


def explain_stays(rows: Sequence[OpRow]) -> None:
    """Set the reason of ops that stay on the CPU although the Neural Engine supports them. `rows`: those of one function."""
    for stretch in _stretches(rows):
        reason = _reason([stretch])
        for row in stretch.rows:
            row.reason = row.reason or reason


def list_reasons(rows: Sequence[OpRow]) -> list[Reason]:
    """Return the reasons, most costly first, each with its ops. `rows`: those of all chunks."""
    total = sum(row.ms for row in rows) or 1.0
    groups: dict[tuple[str | None, str], list[OpRow]] = defaultdict(list)
    for row in rows:
        if row.preferred != "ane":
            groups[_key(row)].append(row)
    stays = [one for one in _stretches(rows) if one.rows[0].reason.startswith(STAYS)]
    found = []
    for (rule, reason), members in groups.items():
        first, others = members[0], len({row.reason for row in members}) - 1
        example = first.reason + (f" (and {others} more like it)" if others else "")
        found.append(
            Reason(
                rule=rule, reason=_reason(stays) if reason == STAYS else example, ops=len(members),
                op_types=dict(Counter(row.site.type for row in members).most_common()),
                cost_share=round(sum(row.ms for row in members) / total, 6),
                names=[row.site.name for row in members[:5]], source=first.verdict.source or "cost model (751K, M4)",
                confidence=first.confidence,
            )
        )  # fmt: skip
    return sorted(found, key=lambda entry: (-entry.cost_share, entry.rule or "", entry.reason))


def _key(row: OpRow) -> tuple[str | None, str]:
    """Return (rule, reason), by which rows share an entry; the shapes in a rule's text are left out."""
    if row.reason == row.verdict.reason:
        return row.verdict.rule, ""
    return ("path", STAYS) if row.reason.startswith(STAYS) else (None, row.reason)


def _stretches(rows: Sequence[OpRow]) -> list[_Stretch]:
    found: list[_Stretch] = []
    for _, function in groupby(rows, lambda row: (row.chunk, row.site.function)):
        place = 0
        for stays, members in groupby(
            function, lambda row: row.preferred == "cpu" and row.ane_ms is not None and not row.site.nested
        ):
            stretch = _Stretch(place == 0, list(members))
            place += len(stretch.rows)
            found += [stretch] * stays
    return found


def _reason(stretches: Sequence[_Stretch]) -> str:
    rows = [row for one in stretches for row in one.rows]
    saved = sum(row.cpu_ms - (row.ane_ms or 0.0) for row in rows)
    cost = sum(path.LAUNCH_MS + path.SWITCH_MS * (1 if one.is_first else 2) for one in stretches)  # there and back
    ops = "this op" if len(rows) == 1 else f"these {len(rows)} ops"
    where = f" in {len(stretches)} places" if len(stretches) > 1 else ""
    gain = f"would save {saved:.3f} ms on {ops}{where}" if saved >= _LEAST_MS else f"saves nothing on {ops}{where}"
    return f"{STAYS} {gain}; going there costs {cost:.3f} ms"

"""What a search found: the cell, or the front; what each axis bought; what was never timed, and why. Also as search.json."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from ane_sweep import tables
from ane_sweep.bridge import disk
from ane_sweep.bridge.record import Record, Status, flat_cell
from ane_sweep.report import searched
from ane_sweep.search.goal import Goal, figure
from ane_sweep.search.order import front
from ane_sweep.search.search import NOT_WRONG, Search


def winners(goal: Goal, records: list[Record]) -> list[Record]:
    """Cells within the limits that no other beats; one for one objective, ok before degraded where they are equal."""
    fits = {r.cell_key: r for r in records if r.status in NOT_WRONG and goal.broken(r) is None}
    gains = {key: gain for key, r in fits.items() if (gain := goal.gains(r)) is not None}
    best = sorted(front(gains), key=lambda key: ([-part for part in gains[key]], fits[key].status != Status.OK))
    return [fits[key] for key in (best[:1] if len(goal.objectives) == 1 else best)]


def said(found: Search, records: list[Record], explain: bool) -> str:
    """The answer for people."""
    best = winners(found.goal, records)
    timed = f"{len(found.trials)} of {len(records)} cells timed, {found.how}"
    lines = [f"best: {found.goal}", timed]
    if not best:
        lines.append(f"no cell fits: {_obstacles(found)}")
    for record in best:
        figures = ", ".join(
            f"{name} {value:.4g}" for name in _named(found.goal) if (value := figure(record, name)) is not None
        )
        doubt = "" if record.status == Status.OK else f"  [{record.status}: {record.reason}]"
        lines.append(f"  {found.labels[record.cell_key]}: {figures}{doubt}")
    if best and explain:
        lines += ["", *bought(found, records, best[0])]
    if found.never:
        lines.append(f"not timed: {_obstacles(found)}")
    return "\n".join(lines)


def _named(goal: Goal) -> list[str]:
    return list(dict.fromkeys([*goal.objectives, *(limit.figure for limit in goal.limits)]))


def _obstacles(found: Search) -> str:
    """Reasons, the most frequent first, with the figures of single cells left out."""
    reasons = Counter(
        reason.split(" is ")[0] + " breaks its limit" if " was asked for" in reason else reason
        for reason in found.never.values()
    )
    told = [
        f"{count} cells: {reason}" if count > 1 else f"1 cell: {reason}" for reason, count in reasons.most_common(4)
    ]
    return "; ".join(told) or "nothing was left to try"


def bought(found: Search, records: list[Record], best: Record) -> list[str]:
    """Of each axis its values: the best cell that has each, and what of its other cells was dropped."""
    name, sign = next(iter(found.goal.objectives.items()))
    rows = []
    for axis in found.plan.axes:
        mine = flat_cell(best).get(axis)
        for value in dict.fromkeys(str(flat_cell(r).get(axis)) for r in records):
            members = [r for r in records if str(flat_cell(r).get(axis)) == value]
            fits = [v for r in members if found.goal.broken(r) is None and (v := figure(r, name)) is not None]
            top = max(fits, key=lambda v: sign * v, default=None)
            dropped = Counter(found.never[r.cell_key] for r in members if r.cell_key in found.never)
            why = f"{dropped.total()} not timed: {dropped.most_common(1)[0][0]}" if dropped else ""
            rows.append(
                (axis, value + (" (best)" if value == str(mine) else ""), "" if top is None else f"{top:.4g}", why)
            )
    return tables.aligned(rows, heads=("axis", "value", name, "of its cells"), right=(2,)).splitlines()


def as_json(found: Search, records: list[Record]) -> dict[str, Any]:
    """A searched.Found as plain values."""
    known = {record.cell_key: record for record in records}
    named = _named(found.goal)
    plain: dict[str, Any] = msgspec.to_builtins(
        searched.Found(
            searched.Goal(found.goal.objectives, [str(limit) for limit in found.goal.limits]),
            found.how,
            [record.cell_key for record in winners(found.goal, records)],
            [
                searched.Trial(key, found.labels[key], {name: figure(known[key], name) for name in named})
                for key in found.trials
            ],
            [searched.Left(key, found.labels[key], reason) for key, reason in found.never.items()],
        )
    )
    return plain


def write(found: Search, records: list[Record]) -> Path:
    path = found.run.folder / searched.FILE_NAME
    disk.write_json(path, {"schema": 1, **as_json(found, records)})
    return path

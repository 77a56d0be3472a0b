"""What a search found: the cell, or the front; what each axis bought; what was never timed, and why. Also as search.json."""

import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from ane_sweep.bridge import disk
from ane_sweep.bridge.record import Record, Status
from ane_sweep.report import searched
from ane_sweep.search.bought import bought
from ane_sweep.search.goal import Goal, figure
from ane_sweep.search.order import front
from ane_sweep.search.search import NOT_WRONG, SETTLED, Search


def winners(goal: Goal, records: list[Record]) -> list[Record]:
    """Cells within the limits that no other beats; one for one objective, ok before degraded where they are equal."""
    fits = {r.cell_key: r for r in records if r.status in NOT_WRONG and goal.fits(r)}
    gains = {key: gain for key, r in fits.items() if (gain := goal.gains(r)) is not None}
    best = sorted(front(gains), key=lambda key: ([-part for part in gains[key]], not sound(fits[key])))
    return [fits[key] for key in (best[:1] if len(goal.objectives) == 1 else best)]


def said(found: Search, records: list[Record], explain: bool) -> str:
    """The answer for people."""
    best = winners(found.goal, records)
    lines = [f"best: {found.goal}", found.summary(len(records))]
    if not best:
        lines.append(f"no cell fits: {_obstacles(found)}")
    for record in best:
        lines.append(f"  {found.labels[record.cell_key]}: {_figures(found.goal, record)}{_doubt(record)}")
        if words := found.words(record.cell_key):
            lines.append(f"    by itself: {shlex.join(['ane-sweep', *words])}")
    lines += [f"doubt: {one}" for one in unknown(found.goal, best)]
    if best and explain:
        lines += ["", *bought(found, records, best[0])]
    if found.never and best:
        lines.append(f"not timed: {_obstacles(found)}")
    return "\n".join(lines)


def _figures(goal: Goal, record: Record) -> str:
    values = {name: figure(record, name) for name in _named(goal)}
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items() if value is not None)


def sound(record: Record) -> bool:
    """Whether its figures are in no doubt: a cell whose timing was not needed is skipped for that alone."""
    return record.status == Status.OK or record.reason == f"{searched.LEFT_OUT}{SETTLED}"


def _doubt(record: Record) -> str:
    return "" if sound(record) else f"  [{record.status}: {record.reason}]"


def _named(goal: Goal) -> list[str]:
    return list(dict.fromkeys([*goal.objectives, *(limit.figure for limit in goal.limits)]))


def _obstacles(found: Search) -> str:
    """Reasons, the most frequent first, with the figures of single cells left out."""
    reasons = Counter(map(searched.kind, found.never.values()))
    told = [
        f"{count} cells: {reason}" if count > 1 else f"1 cell: {reason}" for reason, count in reasons.most_common(4)
    ]
    if not told and found.lacking:
        return f"{found.lacking} was not recorded of what was timed: this runtime or host does not take it"
    return "; ".join(told) or "nothing was left to try"


def unknown(goal: Goal, best: list[Record]) -> list[str]:
    """Limits that nobody could look at, of the best cells."""
    lacking = [limit for limit in goal.limits if any(figure(record, limit.figure) is None for record in best)]
    return [
        f"{limit} was asked for, and {limit.figure} was not recorded: nobody knows whether it holds"
        for limit in lacking
    ]


def as_json(found: Search, records: list[Record]) -> dict[str, Any]:
    """A searched.Found as plain values."""
    known = {record.cell_key: record for record in records}
    named = _named(found.goal)
    best = [record.cell_key for record in winners(found.goal, records)]
    trials = [
        searched.Trial(
            key,
            found.labels[key],
            {name: figure(known[key], name) for name in named},
            found.values.get(key, {}),
            found.never.get(key),
        )
        for key in found.tried
    ]
    plain: dict[str, Any] = msgspec.to_builtins(
        searched.Found(
            searched.Goal(found.goal.objectives, [str(limit) for limit in found.goal.limits]),
            found.how,
            best,
            trials,
            [searched.Left(key, found.labels[key], reason) for key, reason in found.never.items()],
            found.summary(len(records)),
            {key: words for key in best if (words := found.words(key))},
        )
    )
    return plain


def write(found: Search, records: list[Record]) -> Path:
    path = found.run.folder / searched.FILE_NAME
    disk.write_json(path, {"schema": 1, **as_json(found, records)})
    return path

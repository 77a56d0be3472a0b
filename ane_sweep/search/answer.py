"""The answer of a search as text and as search.json: the best cell or the front, the effect of each axis, the untimed cells."""

import shlex
from collections import Counter
from pathlib import Path

import msgspec

from ane_sweep.bridge import disk
from ane_sweep.bridge.record import Record, Status
from ane_sweep.results import search_log
from ane_sweep.search.bought import tabulate_objective
from ane_sweep.search.goal import Goal, figure
from ane_sweep.search.order import front
from ane_sweep.search.search import NOT_WRONG, SETTLED, Search


def choose_winners(goal: Goal, records: list[Record]) -> list[Record]:
    """Return the cells within the limits that no other beats; for one objective a single cell, preferring ok to degraded if equal."""
    fits = {r.cell_key: r for r in records if r.status in NOT_WRONG and goal.fits(r)}
    gains = {key: gain for key, r in fits.items() if (gain := goal.gains(r)) is not None}
    best = sorted(front(gains), key=lambda key: ([-part for part in gains[key]], not is_sound(fits[key])))
    return [fits[key] for key in (best[:1] if len(goal.objectives) == 1 else best)]


def answer_text(found: Search, records: list[Record], explain: bool) -> str:
    """Return the answer as text."""
    best = choose_winners(found.goal, records)
    lines = [f"best: {found.goal}", found.summary(len(records))]
    if not best:
        lines.append(f"no cell fits: {_obstacles(found)}")
    for record in best:
        lines.append(f"  {found.labels[record.cell_key]}: {_figures(found.goal, record)}{_doubt(record)}")
        if words := found.words(record.cell_key):
            lines.append(f"    by itself: {shlex.join(['ane-sweep', *words])}")
    lines += [f"doubt: {one}" for one in describe_unknown_limits(found.goal, best)]
    if best and explain:
        lines += ["", *tabulate_objective(found, records, best[0])]
    if found.never and best:
        lines.append(f"not timed: {_obstacles(found)}")
    return "\n".join(lines)


def _figures(goal: Goal, record: Record) -> str:
    values = {name: figure(record, name) for name in _named(goal)}
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items() if value is not None)


def is_sound(record: Record) -> bool:
    """Return True if no warning applies to a cell's figures; a cell that did not need timing counts as without warnings."""
    return record.status == Status.OK or record.reason == f"{search_log.LEFT_OUT}{SETTLED}"


def _doubt(record: Record) -> str:
    return "" if is_sound(record) else f"  [{record.status}: {record.reason}]"


def _named(goal: Goal) -> list[str]:
    return list(dict.fromkeys([*goal.objectives, *(limit.figure for limit in goal.limits)]))


def _obstacles(found: Search) -> str:
    """Return the reasons why cells were not timed, the most frequent first, without figures of single cells."""
    reasons = Counter(map(search_log.kind_of_reason, found.never.values()))
    told = [
        f"{count} cells: {reason}" if count > 1 else f"1 cell: {reason}" for reason, count in reasons.most_common(4)
    ]
    if not told and found.lacking:
        return f"{found.lacking} was not recorded of what was timed: this runtime or host does not take it"
    return "; ".join(told) or "nothing was left to try"


def describe_unknown_limits(goal: Goal, best: list[Record]) -> list[str]:
    """Return a sentence for each limit that could not be checked because some best cell lacks the figure."""
    lacking = [limit for limit in goal.limits if any(figure(record, limit.figure) is None for record in best)]
    return [
        f"{limit} was asked for, and {limit.figure} was not recorded: nobody knows whether it holds"
        for limit in lacking
    ]


def as_json(found: Search, records: list[Record]) -> dict[str, object]:
    """Return the search log as plain values."""
    known = {record.cell_key: record for record in records}
    named = _named(found.goal)
    best = [record.cell_key for record in choose_winners(found.goal, records)]
    trials = [
        search_log.Trial(
            key,
            found.labels[key],
            {name: figure(known[key], name) for name in named},
            found.values.get(key, {}),
            found.never.get(key),
        )
        for key in found.tried
    ]
    plain: dict[str, object] = msgspec.to_builtins(
        search_log.SearchLog(
            search_log.LoggedGoal(found.goal.objectives, [str(limit) for limit in found.goal.limits]),
            found.how,
            best,
            trials,
            [search_log.UntimedCell(key, found.labels[key], reason) for key, reason in found.never.items()],
            found.summary(len(records)),
            {key: words for key in best if (words := found.words(key))},
        )
    )
    return plain


def write(found: Search, records: list[Record]) -> Path:
    path = found.run.folder / search_log.FILE_NAME
    disk.write_json(path, {"schema": 1, **as_json(found, records)})
    return path

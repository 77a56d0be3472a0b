"""The answer of a search as text and as search.json: the best cell or the front, the effect of each axis, the untimed cells."""

import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from ane_sweep import tables
from ane_sweep.bridge import disk
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.record import Record, Status, varying_axes
from ane_sweep.results import ranking, search_log
from ane_sweep.results.answer import answer, fetch
from ane_sweep.results.headline import shipped_chip
from ane_sweep.search.goal import ESTIMATE, SHARE, SPEED, Goal, figure
from ane_sweep.search.order import front
from ane_sweep.search.search import SETTLED, Search, is_eligible
from ane_sweep.terminal import count, format_path

SHOWN = ("psnr_db", "package_mb")  # figures of the best cell besides those of the goal
LISTED = 6  # different numbers of a free value; more are shown as STRETCHES of equal width
STRETCHES = 4


def choose_winners(goal: Goal, records: list[Record]) -> list[Record]:
    """Return the cells within the limits that no other beats; for one objective a single cell: of equal ones an ok one, the
    most accurate, the smallest.
    """
    fits = {r.cell_key: r for r in records if is_eligible(goal, r)}
    gains = {key: gain for key, r in fits.items() if (gain := goal.gains(r)) is not None}

    def order(key: str) -> tuple[object, ...]:
        psnr, size = (figure(fits[key], name) or 0.0 for name in SHOWN)
        return [-part for part in gains[key]], not is_sound(fits[key]), -psnr, size

    best = sorted(front(gains), key=order)
    return [fits[key] for key in (best[:1] if len(goal.objectives) == 1 else best)]


def answer_text(found: Search, records: list[Record], explain: bool) -> str:
    """Return the answer as text."""
    best = choose_winners(found.goal, records)
    runs, axes = format_path(found.run.folder.parent), varying_axes(records)
    said = _choose(found, records, best, runs)
    lines = [*said, f"best: {found.goal}", found.summary(len(records))]
    if not best:
        lines.append(f"no cell fits: {_obstacles(found) or 'nothing was left to try'}")
    for record in best:
        doubt = "" if is_sound(record) else f"  [{record.status}: {record.reason}]"
        lines.append(f"  {found.labels[record.cell_key]}: {_figures(found.goal, record)}{doubt}")
        lines += [] if said else [f"    {fetch(record, axes, runs)}"]
        if words := found.words(record.cell_key):
            lines.append(f"    by itself: {shlex.join(['ane-sweep', *words])}")
    lines += [f"doubt: {one}" for one in describe_unknown_limits(found.goal, best)]
    if best and explain:
        lines += ["", *_tabulate_objective(found, records, best[0])]
    if best and (obstacles := _obstacles(found)):
        lines.append(f"{'not timed' if found.times else 'left out'}: {obstacles}")
    return "\n".join(lines)


def _choose(found: Search, records: list[Record], best: list[Record], runs: str) -> list[str]:
    """Return the sentences of the answer of a sweep about the cells that fit, if the goal is what a sweep answers: the
    least headline latency, or what stands for it.
    """
    if not best or len(found.goal.objectives) > 1:
        return []
    chip = shipped_chip(best[0])
    speeds = {SPEED: -1, f"{ESTIMATE}.{chip}": -1, f"{SHARE}.{chip}": 1}
    if not found.goal.objectives.items() <= speeds.items():
        return []
    works = ranking.group_by_work(records)
    mine = next(({records[n].cell_key for n in work} for work in works if best[0] in [records[n] for n in work]), set())
    weighed = {record.cell_key for record in records if record.cell_key in mine and is_eligible(found.goal, record)}
    shown = [one if one.cell_key in weighed else replace(one, metrics=[], placement=[]) for one in records]
    return said if len(said := answer(shown, runs)) > 1 else []


def _figures(goal: Goal, record: Record) -> str:
    values = {name: figure(record, name) for name in dict.fromkeys([*_named(goal), *SHOWN])}
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items() if value is not None)


def is_sound(record: Record) -> bool:
    """Return True if no warning applies to a cell's figures; a cell that did not need timing counts as without warnings."""
    return record.status == Status.OK or record.reason == f"{search_log.LEFT_OUT}{SETTLED}"


def _named(goal: Goal) -> list[str]:
    return list(dict.fromkeys([*goal.objectives, *(limit.figure for limit in goal.limits)]))


def _obstacles(found: Search) -> str:
    """Return the reasons why cells were not timed, the most frequent first, without figures of single cells."""
    reasons = Counter(search_log.kind_of_reason(why) for why in found.never.values() if why != SETTLED or found.times)
    told = [f"{count(number, 'cell')}: {reason}" for reason, number in reasons.most_common(4)]
    if not told and found.lacking:
        return f"{found.lacking} was not recorded of what was timed: this runtime or host does not take it"
    return "; ".join(told)


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


def _tabulate_objective(found: Search, records: list[Record], best: Record) -> list[str]:
    """Return the lines of a table of the first objective: for each value of an axis, or range of a free one, the best cell
    with it, and why other cells were not timed.
    """
    name, sign = next(iter(found.goal.objectives.items()))
    known = {record.cell_key: record for record in records if record.cell_key in found.values}
    first = figure(best, name)
    rows = []
    for axis in dict.fromkeys(axis for values in found.values.values() for axis in values):
        for value, keys in _groups({key: found.values[key].get(axis) for key in known}):
            fits = [
                v for key in keys if is_eligible(found.goal, known[key]) and (v := figure(known[key], name)) is not None
            ]
            top = max(fits, key=lambda v: sign * v, default=None)
            mark = " (best)" if best.cell_key in keys else ""
            more = f"{100 * (top / first - 1):+.0f} %" if top and first else ""
            rows.append((axis, value + mark, "" if top is None else f"{top:.4g}", more, _rest(found, keys)))
    heads = ("axis", "value", name, "than the best", "of its cells")
    return tables.aligned(rows, heads=heads, right=(2, 3)).splitlines()


def _groups(values: dict[str, object]) -> Iterable[tuple[str, list[str]]]:
    """Return (common value or range, keys of the cells) of each group of cells."""
    different = set(map(format_value, values.values()))
    numbers = {key: value for key, value in values.items() if isinstance(value, float)}
    if len(different) <= LISTED or len(numbers) < len(values):
        return [(one, [key for key in values if format_value(values[key]) == one]) for one in _sorted(values.values())]
    low, high = min(numbers.values()), max(numbers.values())
    width = (high - low) / STRETCHES
    parts: dict[int, list[str]] = {}
    for key, value in numbers.items():
        parts.setdefault(min(STRETCHES - 1, int((value - low) / width)), []).append(key)
    return [(f"{low + n * width:.3g} to {low + (n + 1) * width:.3g}", parts[n]) for n in sorted(parts)]


def _sorted(values: Iterable[object]) -> list[str]:
    """Return the distinct values as text: numbers by size, others in their order."""
    once = {format_value(value): value for value in values}
    numbers = {word: value for word, value in once.items() if isinstance(value, (int, float))}
    return sorted(numbers, key=lambda word: numbers[word]) if len(numbers) == len(once) else list(once)


def _rest(found: Search, keys: list[str]) -> str:
    """Return how many of the cells were left out, with the most frequent reason; empty text if none was."""
    reasons = Counter(why for key in keys if (why := found.never.get(key)) and (why != SETTLED or found.times))
    word = "not timed" if found.times else "left out"
    return f"{reasons.total()} {word}: {reasons.most_common(1)[0][0]}" if reasons else ""

"""Which cells are worth having: the Pareto front of latency, package size and PSNR, and the best under constraints.

The page's own script chooses again when somebody types another limit; `best` is the same rule for everything else.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from ane_sweep.bridge.record import Record
from ane_sweep.compare.difference import FEWEST, timing_difference, too_few

# name of a figure -> (head, unit, divisor of the stored value, +1 where more is better)
FIGURES = {
    "latency_median_ms": ("latency", "ms", 1.0, -1),
    "package_bytes": ("package", "MB", 1e6, -1),
    "psnr_db": ("PSNR", "dB", 1.0, 1),
}
Same = Callable[[Record, Record], bool]


def figure(record: Record, name: str) -> float | None:
    """A measured figure in its shown unit, or None; an infinite one weighs nothing, and JSON has no word for it."""
    value = record.value(name)
    return value / FIGURES[name][2] if isinstance(value, (int, float)) and math.isfinite(value) else None


def ranked(records: Sequence[Record]) -> list[int]:
    """Positions of the cells that have all three figures: the only ones that can be weighed against each other."""
    return [n for n, record in enumerate(records) if all(figure(record, name) is not None for name in FIGURES)]


def front(records: Sequence[Record]) -> list[int]:
    """Positions of the cells that no other cell beats: none is as good in all three figures and better in one."""
    kept = ranked(records)
    gains = {n: tuple(FIGURES[name][3] * (figure(records[n], name) or 0.0) for name in FIGURES) for n in kept}
    return [n for n in kept if not any(_beats(gains[other], gains[n]) for other in kept)]


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other))


def best(records: Sequence[Record], goal: str, limits: dict[str, float], same: Same) -> tuple[int | None, list[int]]:
    """(position of the best cell, positions of those that cannot be told apart from it).

    goal    a name of FIGURES: the least, or of PSNR the most
    limits  name -> the most that is allowed (of PSNR the least), in shown units
    same    whether the latencies of two cells cannot be told apart; other figures have no noise and tie when equal
    """
    fit = [n for n in ranked(records) if all(_within(records[n], name, limit) for name, limit in limits.items())]
    if not fit:
        return None, []
    sign = FIGURES[goal][3]
    first = max(fit, key=lambda n: sign * _known(records[n], goal))
    return first, [n for n in fit if n != first and _tied(records[first], records[n], goal, same)]


def _within(record: Record, name: str, limit: float) -> bool:
    sign = FIGURES[name][3]
    return sign * _known(record, name) >= sign * limit


def _tied(one: Record, other: Record, goal: str, same: Same) -> bool:
    if goal == "latency_median_ms":
        return same(one, other)
    return _known(one, goal) == _known(other, goal)


def _known(record: Record, name: str) -> float:
    value = figure(record, name)
    assert value is not None
    return value


def ties(records: Sequence[Record], same: Same) -> dict[int, list[int]]:
    """For each ranked cell, those whose latency cannot be told apart from its own. Only near ones are asked about.

    Sorted by latency, a cell is compared with its neighbours until twelve in a row differ: what lies further away
    differs too.
    """
    order = sorted(ranked(records), key=lambda n: _known(records[n], "latency_median_ms"))
    found: dict[int, list[int]] = {n: [] for n in order}
    for place, n in enumerate(order):
        apart = 0
        for other in order[place + 1 :]:
            if same(records[n], records[other]):
                found[n].append(other)
                found[other].append(n)
                apart = 0
            elif (apart := apart + 1) >= 12:
                break
    return found


def same_timing(one: Record, other: Record) -> bool:
    """Whether two latencies cannot be told apart: they share one timing, or the test of compare/difference.py says so.

    Where there are too few processes to test anything, those count whose interquartile ranges overlap (see `untested`).
    """
    tasks = [record.realised.get("latency_task") for record in (one, other)]
    if tasks[0] is not None and tasks[0] == tasks[1]:
        return True
    sides = [rounds(record) for record in (one, other)]
    if min(map(len, sides)) >= FEWEST:
        return timing_difference(one.timings, other.timings, paired=one.sweep == other.sweep).verdict == "same"
    spans = [_span(record) for record in (one, other)]
    return spans[0][0] <= spans[1][1] and spans[1][0] <= spans[0][1]


def rounds(record: Record) -> dict[int, float]:
    """{round: median of that round's process in ms}."""
    return {timing.round: timing.median_ms for timing in record.timings}


def untested(records: Sequence[Record]) -> str:
    """What to say of differences where cells were timed in too few processes; empty where they can be tested."""
    counts = [len(rounds(records[n])) or 1 for n in ranked(records)]
    few = [count for count in counts if count < FEWEST]
    which = "differences" if len(few) == len(counts) else f"differences to {len(few)} of {len(counts)} cells"
    return f"{which} are untested: {too_few((min(few), min(few)))}" if few else ""


def _span(record: Record) -> tuple[float, float]:
    median, iqr = (record.value(name) for name in ("latency_median_ms", "latency_iqr_ms"))
    half = (iqr or 0.0) / 2
    return median - half, median + half


def facts(records: Sequence[Record], same: Same) -> list[dict[str, Any]]:
    """What the page's script needs of each ranked cell, in shown units."""
    fronts, tied = set(front(records)), ties(records, same)
    return [
        {
            "cell": n,
            **{name: _known(records[n], name) for name in FIGURES},
            "front": n in fronts,
            "same": tied[n],
        }
        for n in ranked(records)
    ]

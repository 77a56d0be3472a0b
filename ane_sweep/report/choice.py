"""Which cells are worth having: per work, the Pareto front of latency, package size, PSNR and the score of a task where the
cells have one, and the best under limits.

A work is what cells do alike, so that their figures can be weighed: the same reference outputs, timed by the same runtime
on the same chip, of a fleet by the same worker. A cell in doubt wins only where no sound one keeps to the limits, and is
said to be in doubt. The page's own script chooses again when somebody types another limit or filters; this is the same
rule for everything else.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ane_sweep.bridge import metrics
from ane_sweep.bridge.metrics import METRICS, RANKED, MetricSpec
from ane_sweep.bridge.record import Record, Status
from ane_sweep.compare.difference import FEWEST, timing_difference, too_few

Same = Callable[[Record, Record], bool]


@dataclass
class Winner:
    """A cell, what it is best at, and those that cannot be told apart from it in latency.

    alike   goal -> what is said of the cells that are exactly as good there
    """

    cell: int
    goals: list[str] = field(default_factory=list)
    tied: list[int] = field(default_factory=list)
    alike: dict[str, str] = field(default_factory=dict)

    def words(self) -> str:
        """Return its goals as the page's script has them: `fastest, smallest (all alike)`."""
        return ", ".join(f"{goal} ({self.alike[goal]})" if goal in self.alike else goal for goal in self.goals)


def figure(record: Record, name: str) -> float | None:
    """A measured figure in its shown unit, or None; an infinite one weighs nothing, and JSON has no word for it."""
    value = record.value(name)
    return value / METRICS[name].divisor if isinstance(value, (int, float)) and math.isfinite(value) else None


def ranked(records: Sequence[Record], cells: Iterable[int] | None = None) -> list[int]:
    """Positions, of these cells (None: of all), of those that have all three figures: the only ones that can be weighed
    against each other."""
    among = range(len(records)) if cells is None else sorted(set(cells))
    return [n for n in among if all(figure(records[n], name) is not None for name in RANKED)]


def metrics_for_limits(records: Sequence[Record]) -> list[MetricSpec]:
    """Return the metrics that a limit can be set on: RANKED, then those of the report that a ranked cell has."""
    among = [records[n] for n in ranked(records)]
    others = [spec for spec in metrics.shown_in("report") if spec.name not in RANKED]
    known = [spec for spec in others if any(figure(record, spec.name) is not None for record in among)]
    return [*(METRICS[name] for name in RANKED), *known]


def goals(records: Sequence[Record], cells: Iterable[int]) -> dict[str, str]:
    """What ranked cells of one work are weighed by: figure -> what the best at it is called."""
    among = [records[n] for n in cells]
    common = (
        one for one in metrics.scores() if among and all(figure(record, one.name) is not None for record in among)
    )
    score = next(common, None)
    return RANKED | ({} if score is None else {score.name: f"{'best' if score.better > 0 else 'lowest'} {score.short}"})


def works(records: Sequence[Record]) -> list[list[int]]:
    """The ranked cells by their work, in the order of the records."""
    found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for n in ranked(records):
        found[_work(records[n])].append(n)
    return list(found.values())


def _work(record: Record) -> tuple[Any, ...]:
    reference = {stage.stage: stage.key for stage in record.stages}.get("reference")
    asked = tuple(str(record.cell.get(name)) for name in ("model", "seq_len", "host"))
    return *asked, reference, record.realised.get("runtime"), record.host.get("chip"), record.host.get("worker")


def sound(record: Record) -> bool:
    """Whether nothing is said against its figures."""
    return record.status is Status.OK


def ane_shares(record: Record) -> dict[str, float]:
    """{chip: percent of the ops on the Neural Engine}, as predicted; `planned` by Core ML for the machine it ran on."""
    entries = [entry for entry in record.placement if entry.ops.total]
    found = {entry.chip or "-": 100 * entry.ops.share("ane") for entry in entries if entry.kind == "predicted"}
    for entry in entries:
        if entry.kind == "planned":
            found["planned"] = 100 * entry.ops.share("ane")
    return found


def front(records: Sequence[Record], cells: Iterable[int] | None = None) -> list[int]:
    """Of these cells (None: all) the sound ones that no other beats: none is as good in all figures that they are weighed by,
    and better in one."""
    among = ranked(records, cells)
    kept = [n for n in among if sound(records[n])]
    names = goals(records, among)
    gains = {n: tuple(METRICS[name].better * _known(records[n], name) for name in names) for n in kept}
    unbeaten: list[tuple[float, ...]] = []
    for gain in sorted(set(gains.values()), reverse=True):  # who beats another comes before it
        if not any(beats(other, gain) for other in unbeaten):
            unbeaten.append(gain)
    best = set(unbeaten)
    return [n for n in kept if gains[n] in best]


def beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other))


def winners(records: Sequence[Record], cells: Sequence[int], limits: dict[str, float], same: Same) -> list[Winner]:
    """The fastest, the smallest, the most accurate and that of the best score of the cells of one work; one that is several
    of these comes once."""
    found: dict[int, Winner] = {}
    for goal, word in goals(records, cells).items():
        first, tied = best(records, goal, limits, same, cells)
        if first is not None:
            winner = found.setdefault(first, Winner(first))
            winner.goals.append(word)
            if goal == "latency_median_ms":
                winner.tied = tied
            elif tied:
                every = len(tied) + 1 == len(_candidates(records, limits, cells))
                winner.alike[word] = "all alike" if every else f"{len(tied)} more alike"
    return list(found.values())


def best(
    records: Sequence[Record], goal: str, limits: dict[str, float], same: Same, cells: Iterable[int] | None = None
) -> tuple[int | None, list[int]]:
    """(position of the best cell, positions of those that cannot be told apart from it).

    goal    a metric of the report: the least, or of PSNR the most; among cells that are alike there, the fastest
    limits  name -> the most that is allowed (of PSNR the least), in shown units; `ane`: the least percent of ops. Of
            what a cell has no figure of, nobody knows that it keeps to it
    same    whether the latencies of two cells cannot be told apart; other figures have no noise and tie when equal
    """
    fit = _candidates(records, limits, cells)
    if not fit:
        return None, []
    sign = METRICS[goal].better
    first = max(fit, key=lambda n: (sign * _known(records[n], goal), -_known(records[n], "latency_median_ms")))
    return first, [n for n in fit if n != first and _tied(records[first], records[n], goal, same)]


def _candidates(records: Sequence[Record], limits: dict[str, float], cells: Iterable[int] | None) -> list[int]:
    """Return the cells that keep to the limits: the sound ones, or all if none is sound."""
    fit = [n for n in ranked(records, cells) if _fits(records[n], limits)]
    return [n for n in fit if sound(records[n])] or fit


def _fits(record: Record, limits: dict[str, float]) -> bool:
    shares = ane_shares(record).values()
    known = {name: min(shares, default=0.0) if name == "ane" else figure(record, name) for name in limits}
    signs = {name: 1 if name == "ane" else METRICS[name].better for name in limits}
    return all((one := known[name]) is not None and signs[name] * (one - limit) >= 0 for name, limit in limits.items())


def _tied(one: Record, other: Record, goal: str, same: Same) -> bool:
    if goal == "latency_median_ms":
        return same(one, other)
    return _known(one, goal) == _known(other, goal)


def _known(record: Record, name: str) -> float:
    value = figure(record, name)
    assert value is not None
    return value


def ties(records: Sequence[Record], same: Same, cells: Iterable[int] | None = None) -> dict[int, list[int]]:
    """For each ranked cell, those whose latency cannot be told apart from its own. Only near ones are asked about.

    Sorted by latency, a cell is compared with its neighbours until twelve in a row differ: what lies further away
    differs too.
    """
    order = sorted(ranked(records, cells), key=lambda n: _known(records[n], "latency_median_ms"))
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
    found, offered = works(records), metrics_for_limits(records)
    tied = {n: others for cells in found for n, others in ties(records, same, cells).items()}
    place = {n: number for number, cells in enumerate(found) for n in cells}
    return [
        {
            "cell": n,
            "work": place[n],
            **{spec.name: figure(records[n], spec.name) for spec in offered},
            "ane": ane_shares(records[n]),
            "sound": sound(records[n]),
            "same": tied[n],
        }
        for n in ranked(records)
    ]

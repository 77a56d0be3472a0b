"""The ranking of a sweep's cells: in each group of comparable cells, the Pareto front of latency, package size, PSNR
and a task's score, and the best cells under limits.

Comparable cells (one "work") have the same reference outputs and headline latencies (headline.py) of one kind: estimated
for the same chip, or timed by the same runtime on the same chip (in a fleet by the same worker). Cells without one are a
work of their own and are weighed by the predicted share of the cost on the Neural Engine in its place. A cell with
warnings wins only if no other cell keeps to the limits, and is marked. The page's script applies the same rule again
when the reader types a limit or filters.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ane_sweep.bridge import metrics
from ane_sweep.bridge.metrics import METRICS, RANKED, RANKED_UNTIMED, MetricSpec
from ane_sweep.bridge.record import Record, Status
from ane_sweep.placement import ordering
from ane_sweep.results import search_log
from ane_sweep.results.difference import compare_timings, explain_too_few, figures_by_round
from ane_sweep.results.headline import (
    HEADLINE,
    answers_by_timing,
    headline,
    headline_ms,
    shipped_chip,
    shipped_placement,
)
from ane_sweep.stats.student import FEWEST

SPEEDS = (HEADLINE, next(iter(RANKED_UNTIMED)))  # the goals that stand for speed, one of which a work has
ORDER = (*SPEEDS, "psnr_db", "package_bytes")  # decides between cells that are equal in a goal, the first first
SHOWN = 1_000  # cells of one page; a quarter of them, at most, for cells that are not ok


@dataclass
class Winner:
    """A winning cell with the goals that it wins.

    tied    cells whose latency is statistically indistinguishable from the winner's
    alike   goal -> words about the cells with exactly the same value
    """

    cell: int
    goals: list[str] = field(default_factory=list)
    tied: list[int] = field(default_factory=list)
    alike: dict[str, str] = field(default_factory=dict)

    def words(self) -> str:
        """Return the winner's goals as the page's script has them: `fastest, smallest (all alike)`."""
        return ", ".join(f"{goal} ({self.alike[goal]})" if goal in self.alike else goal for goal in self.goals)


def get_figure(record: Record, name: str) -> float | None:
    """Return a figure in its shown unit, or None if it is absent or infinite, which JSON cannot hold.

    A predicted figure is that for the chip that the user ships for.
    """
    chip = shipped_chip(record) if METRICS[name].kind == "predicted" else None
    value = headline_ms(record) if name == HEADLINE else record.value(name, METRICS[name].kind, chip)
    return value / METRICS[name].divisor if isinstance(value, (int, float)) and math.isfinite(value) else None


def select_ranked(records: Sequence[Record], cells: Iterable[int] | None = None) -> list[int]:
    """Return the positions of the cells that have every figure of `ranked_by`, among the given cells or all."""
    among = range(len(records)) if cells is None else sorted(set(cells))
    return [n for n in among if all(get_figure(records[n], name) is not None for name in ranked_by(records[n]))]


def ranked_by(record: Record) -> dict[str, str]:
    """Return {metric: name for the best cell in it} of the metrics by which a cell is weighed; the first is its speed, or
    what stands for it.
    """
    return RANKED_UNTIMED if headline(record) is None else RANKED


def list_limit_metrics(records: Sequence[Record]) -> list[MetricSpec]:
    """Return the metrics that can have a limit: those that rank cells, then the report's that a ranked cell has."""
    among = [records[n] for n in select_ranked(records)]
    ranked = dict.fromkeys(name for record in among for name in ranked_by(record)) or RANKED
    others = [spec for spec in metrics.shown_in("report") if spec.name not in ranked]
    known = [spec for spec in others if any(get_figure(record, spec.name) is not None for record in among)]
    return [*(METRICS[name] for name in ranked), *known]


def choose_goals(records: Sequence[Record], cells: Iterable[int]) -> dict[str, str]:
    """Return {metric: name for the best cell in it} of the metrics by which ranked cells of one group are compared.

    They are those of `ranked_by` and the first score that all of these cells have.
    """
    among = [records[n] for n in cells]
    ranked = ranked_by(among[0]) if among else RANKED
    for score in metrics.scores():
        if among and all(get_figure(record, score.name) is not None for record in among):
            return ranked | {score.name: f"{'best' if score.better > 0 else 'lowest'} {score.short}"}
    return ranked


def group_by_work(records: Sequence[Record]) -> list[list[int]]:
    """Return the positions of the ranked cells in groups of comparable cells, in the order of the records."""
    found: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for n in select_ranked(records):
        found[_work_of(records[n])].append(n)
    return list(found.values())


def question_of(record: Record) -> tuple[object, ...]:
    """Return a key that cells share if they answer the same question: one model, input length and reference outputs."""
    reference = {stage.stage: stage.key for stage in record.stages}.get("reference")
    return *(str(record.cell.get(name)) for name in ("model", "seq_len", "host")), reference


def _work_of(record: Record) -> tuple[object, ...]:
    latency = headline(record)
    if latency is None or latency.kind != "measured":
        return *question_of(record), shipped_chip(record), latency is None
    return *question_of(record), record.realised.get("runtime"), record.host.get("chip"), record.host.get("worker")


def is_sound(record: Record) -> bool:
    """Return True if no warning applies to the record's figures."""
    return record.status is Status.OK


def compute_ane_shares(record: Record) -> dict[str, float]:
    """Return {chip: predicted percent of the ops on the Neural Engine}; Core ML's own plan for this machine is `planned`."""
    found: dict[str, float] = {}
    for kind in ("predicted", "planned"):
        for entry in record.placed(kind):
            if entry.ops.total:
                found["planned" if kind == "planned" else entry.chip or "-"] = 100 * entry.ops.share("ane")
    return found


def find_front(records: Sequence[Record], cells: Iterable[int] | None = None) -> list[int]:
    """Return the Pareto front of the cells without warnings: no other cell is as good in every goal and better in one."""
    among = select_ranked(records, cells)
    kept = [n for n in among if is_sound(records[n])]
    names = choose_goals(records, among)
    gains = {n: _gains(records[n], names) for n in kept}
    unbeaten: list[tuple[float, ...]] = []
    for gain in sorted(set(gains.values()), reverse=True):  # who beats another comes before it
        if not any(beats(other, gain) for other in unbeaten):
            unbeaten.append(gain)
    best = set(unbeaten)
    return [n for n in kept if gains[n] in best]


def beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return True if `one` is at least as good in every gain as `other` and not equal to it."""
    return one != other and all(a >= b for a, b in zip(one, other))


def choose_winners(records: Sequence[Record], cells: Sequence[int], limits: dict[str, float]) -> list[Winner]:
    """Return the winners of one group (fastest, smallest, most accurate, best score); a cell with several goals occurs once."""
    found: dict[int, Winner] = {}
    for goal, word in choose_goals(records, cells).items():
        first, tied = choose_best(records, goal, limits, cells)
        if first is not None:
            winner = found.setdefault(first, Winner(first))
            winner.goals.append(word)
            if goal in SPEEDS:
                winner.tied = tied
            elif tied:
                every = len(tied) + 1 == len(_candidates(records, limits, cells))
                winner.alike[word] = "all alike" if every else f"{len(tied)} more alike"
    return list(found.values())


def choose_best(
    records: Sequence[Record], goal: str, limits: dict[str, float], cells: Iterable[int] | None = None
) -> tuple[int | None, list[int]]:
    """Return (position of the best cell, positions of the cells tied with it), or (None, []) if no cell keeps to the limits.

    goal    a metric of the report; among cells that are equal in it, the fastest wins, then the most accurate, then the
            smallest. latencies tie unless `are_told_apart`, other figures, which have no noise, if equal
    limits  metric -> bound in shown units (a maximum for latency, a minimum for PSNR); `ane`: minimum percent of ops. A
            cell without the figure breaks the limit
    """
    fit = _candidates(records, limits, cells)
    if not fit:
        return None, []
    gains = {n: _gains(records[n], (goal, *ORDER)) for n in fit}
    first = max(fit, key=gains.__getitem__)
    if goal == HEADLINE:
        return first, [n for n in fit if n != first and not are_told_apart(records[first], records[n])]
    return first, [n for n in fit if n != first and gains[n][0] == gains[first][0]]


def _gains(record: Record, names: Iterable[str]) -> tuple[float, ...]:
    """Return the known figures of a record, with signs such that more is better."""
    figures = {name: get_figure(record, name) for name in names}
    return tuple(METRICS[name].better * figure for name, figure in figures.items() if figure is not None)


def _candidates(records: Sequence[Record], limits: dict[str, float], cells: Iterable[int] | None) -> list[int]:
    """Return the cells that keep to the limits: those without warnings, or all if every one has warnings."""
    fit = [n for n in select_ranked(records, cells) if _fits(records[n], limits)]
    return [n for n in fit if is_sound(records[n])] or fit


def _fits(record: Record, limits: dict[str, float]) -> bool:
    shares = compute_ane_shares(record).values()
    known = {name: min(shares, default=0.0) if name == "ane" else get_figure(record, name) for name in limits}
    signs = {name: 1 if name == "ane" else METRICS[name].better for name in limits}
    return all((one := known[name]) is not None and signs[name] * (one - limit) >= 0 for name, limit in limits.items())


def find_ties(records: Sequence[Record], cells: Iterable[int] | None = None) -> dict[int, list[int]]:
    """Return, for each ranked cell, the cells whose latency does not differ (`are_told_apart`).

    Each cell is compared with its neighbours in order of latency until twelve in a row differ: cells further away
    differ too.
    """
    order = sorted(select_ranked(records, cells), key=lambda n: headline_ms(records[n]) or 0.0)
    found: dict[int, list[int]] = {n: [] for n in order}
    for place, n in enumerate(order):
        apart = 0
        for other in order[place + 1 :]:
            if not are_told_apart(records[n], records[other]):
                found[n].append(other)
                found[other].append(n)
                apart = 0
            elif (apart := apart + 1) >= 12:
                break
    return found


def are_told_apart(one: Record, other: Record) -> bool:
    """Return True if two comparable cells differ in latency: measured ones by a test of their processes, estimated ones if
    published pairs of such a difference were ordered right often enough (placement/ordering.py).

    Measured latencies that share one timing do not differ. With too few processes for a test, overlapping interquartile
    ranges do not differ either (see `describe_untested`), nor do cells with warnings. Cells without a
    latency differ in their share of the cost.
    """
    mine, its = headline(one), headline(other)
    if mine is None or its is None:
        return get_figure(one, SPEEDS[1]) != get_figure(other, SPEEDS[1])
    if mine.kind != "measured" or its.kind != "measured":
        return (mine.kind, mine.chip) != (its.kind, its.chip) or how_sure(one, other) != "not told apart"
    task = one.realised.get("latency_task")
    if task is not None and task == other.realised.get("latency_task"):
        return False
    if min(count_rounds(one), count_rounds(other)) >= FEWEST:
        return compare_timings(one.timings, other.timings, paired=one.sweep == other.sweep).verdict != "same"
    (low, high), (least, most) = mine.span, its.span
    return is_sound(one) and is_sound(other) and (low > most or least > high)


def how_sure(one: Record, other: Record) -> ordering.Sureness:
    """Return how sure the order of two cells is whose headlines are estimates for one chip. Raises ValueError for others."""
    mine, its = headline(one), headline(other)
    if mine is None or its is None or mine.chip is None or mine.chip != its.chip:
        raise ValueError("only estimates for one chip have an order of known sureness")
    differences: dict[ordering.Difference, bool] = {
        "guess": any(ordering.is_guess(*latency.span) for latency in (mine, its)),
        "units": _main_unit(one) != _main_unit(other),
        "weights": one.cell.get("precision") != other.cell.get("precision"),
        "chunks": one.realised.get("chunks") != other.realised.get("chunks"),
    }
    among = [name for name, differs in differences.items() if differs]
    return ordering.how_sure(max(mine.ms, its.ms) / (min(mine.ms, its.ms) or math.inf), *among)


def _main_unit(record: Record) -> str | None:
    """Return the unit that is predicted to run most of the ops on the chip that the user ships for."""
    entry = shipped_placement(record)
    return max(("ane", "gpu", "cpu"), key=vars(entry.ops).__getitem__) if entry else None


def count_rounds(record: Record) -> int:
    return len(figures_by_round(record.timings, "median_ms"))


def describe_untested(records: Sequence[Record]) -> str:
    """Return a warning if cells were timed in too few processes to test their differences, else an empty text."""
    timed = [records[n] for n in select_ranked(records) if answers_by_timing(records[n])]
    counts = [count_rounds(record) or 1 for record in timed]
    few = [count for count in counts if count < FEWEST]
    which = "differences" if len(few) == len(counts) else f"differences to {len(few)} of {len(counts)} cells"
    return f"{which} are untested: {explain_too_few((min(few), min(few)))}" if few else ""


def list_facts(records: Sequence[Record]) -> list[dict[str, object]]:
    """Return the facts about each ranked cell that the page's script needs, in shown units."""
    works, offered = group_by_work(records), list_limit_metrics(records)
    tied = {n: others for cells in works for n, others in find_ties(records, cells).items()}
    place = {n: number for number, cells in enumerate(works) for n in cells}
    return [
        {
            "cell": n,
            "work": place[n],
            **{spec.name: get_figure(records[n], spec.name) for spec in offered},
            "ane": compute_ane_shares(records[n]),
            "sound": is_sound(records[n]),
            "same": tied[n],
        }
        for n in select_ranked(records)
    ]


def not_ok_groups(records: Sequence[Record]) -> list[list[Record]]:
    """Return the records that are not ok, grouped by status and reason (in a search, by kind of reason); group n is warning n + 1."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.status is not Status.OK:
            groups[record.status.value, search_log.kind_of_reason(record.reason or "")].append(record)
    return list(groups.values())


def select_shown_cells(records: Sequence[Record], most: int = SHOWN) -> list[int]:
    """Return positions in the order of the records: the front and the fastest of each group, and examples of each kind of trouble."""
    if len(records) <= most:
        return list(range(len(records)))
    place = {id(record): n for n, record in enumerate(records)}
    works = group_by_work(records)
    wrong = _in_turns([[place[id(record)] for record in group] for group in not_ok_groups(records)])
    fastest = _in_turns([sorted(work, key=lambda n: headline_ms(records[n]) or 0) for work in works])
    best = _in_turns([find_front(records, work) for work in works])
    wanted = [*best[: most // 2], *fastest[: len(works)], *wrong[: most // 4], *fastest, *range(len(records))]
    return sorted(list(dict.fromkeys(wanted))[:most])


def _in_turns(groups: Iterable[Iterable[int]]) -> list[int]:
    """Return the first of each list, then the second of each, and so on."""
    return [n for turn in itertools.zip_longest(*groups) for n in turn if n is not None]

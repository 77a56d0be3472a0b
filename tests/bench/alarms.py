"""false alarms and power of the comparison, on a pool of fresh processes (64 rounds: some 15 minutes; MORE: 4)"""

import argparse
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from ane_sweep.results.difference import LEVEL
from ane_sweep.stats.samples import quantile
from ane_sweep.stats.student import weigh_difference
from tests.bench import Row, _pool

ROUNDS, DRAWS = 64, 1000
SIZES = (3, 5, 8, 12, 20)
ALARM_BAR, POWER_BAR = "at most 3 %", "at least 90 %"
Side = dict[int, tuple[float, float]]  # of each process: median and lower quartile of its samples, in ms
Draw = Callable[[random.Random, int], tuple[Side, Side]]


def run(path: Path | None = None, rounds: int = ROUNDS) -> list[Row]:
    """Take what is missing of the pool, then draw from it: three ways to compare, with and without a real delay."""
    path = path or Path(os.environ.get("ANE_SWEEP_OUT") or "outputs") / "bench" / "alarms.json"
    pool = _pool.take(path, rounds)
    rows = [Row(f"pool {path}: {len(pool['runs'])} processes", *_realised(pool))]
    enough: dict[str, int] = {}
    for name, other, bar in (("false alarms", "b", ALARM_BAR), ("10 % delay found", "delayed", POWER_BAR)):
        for way in WAYS:
            for size in SIZES:
                if (hits := _hits(pool, way, size, other)) is not None:
                    rows.append(_row(f"{name}, {way}, {size} processes a side", hits, bar))
                    if other == "delayed" and hits["both"] >= 0.9 * DRAWS:
                        enough.setdefault(way, size)
    said = ", ".join(f"{way} {enough.get(way, 'more')}" for way in WAYS)
    return [*rows, Row("processes a side that find it in 90 %", said)]


def _realised(pool: dict[str, Any]) -> tuple[str, str]:
    """What the pool itself shows: how much processes scatter, and what the delay really came to."""
    scatter, delay = [], []
    for program in pool["programs"]:
        logs = {slot: np.log(list(_medians(_side(pool, program, slot)).values())) for slot in _pool.SLOTS}
        scatter.append(f"{program} {100 * logs['a'].std(ddof=1):.1f} %")
        delay.append(f"{program} {100 * (np.exp(np.mean(logs['delayed'] - logs['a'])) - 1):.1f} %")
    return "scatter " + ", ".join(scatter), "delay " + ", ".join(delay)


def _side(pool: dict[str, Any], program: str, slot: str) -> Side:
    runs = [run for run in pool["runs"] if (run["program"], run["slot"]) == (program, slot)]
    return {run["round"]: (run["median_ms"], quantile(run["samples_ms"], 0.25)) for run in runs}


def _medians(side: Side) -> dict[int, float]:
    return {number: median for number, (median, _) in side.items()}


def across(pool: dict[str, Any], program: str, other: str) -> Draw:
    """Two sweeps, as a comparison finds them: processes at random, none twice."""
    plain = [*_side(pool, program, "a").values(), *_side(pool, program, "b").values()]
    late = list(_side(pool, program, "delayed").values())

    def draw(drawn: random.Random, size: int) -> tuple[Side, Side]:
        if other == "b":
            both = drawn.sample(plain, 2 * size)
            return dict(enumerate(both[:size])), dict(enumerate(both[size:]))
        return dict(enumerate(drawn.sample(plain, size))), dict(enumerate(drawn.sample(late, size)))

    return draw


def within(pool: dict[str, Any], program: str, other: str) -> Draw:
    """One sweep: both cells in the same rounds, compared round by round."""
    a, b = _side(pool, program, "a"), _side(pool, program, other)

    def draw(drawn: random.Random, size: int) -> tuple[Side, Side]:
        rounds = drawn.sample(sorted(a), size)
        return {r: a[r] for r in rounds}, {r: b[r] for r in rounds}

    return draw


def in_a_row(pool: dict[str, Any], program: str, other: str) -> Draw:
    """Two sweeps one after the other: consecutive rounds, with whatever the machine did in between."""
    a, b = _side(pool, program, "a"), _side(pool, program, "a" if other == "b" else other)
    numbers = sorted(a)

    def draw(drawn: random.Random, size: int) -> tuple[Side, Side]:
        start = drawn.randrange(len(numbers) - 2 * size + 1)
        first, second = numbers[start : start + size], numbers[start + size : start + 2 * size]
        return {r: a[r] for r in first}, {r: b[r] for r in second}

    return draw


WAYS: dict[str, Callable[[dict[str, Any], str, str], Draw]] = {
    "across sweeps": across,
    "within a sweep": within,
    "sweeps in a row": in_a_row,
}


def _hits(pool: dict[str, Any], way: str, size: int, other: str) -> dict[str, int] | None:
    """How often each test called a draw different, of DRAWS; None where the pool is too small for that many processes."""
    ways = [WAYS[way](pool, program, other) for program in pool["programs"]]
    drawn = random.Random(f"{way} {size} {other}")
    hits = dict.fromkeys(("both", "medians", "lower quartiles", "untrimmed medians", "permuted medians", "ranks"), 0)
    try:
        for number in range(DRAWS):
            a, b = ways[number % len(ways)](drawn, size)
            paired = way == "within a sweep"
            p = {name: _p_of(a, b, part, paired) for part, name in enumerate(("medians", "lower quartiles"))}
            p |= {"both": 2 * min(p.values())}
            p |= others([m for m, _ in a.values()], [m for m, _ in b.values()], paired)
            for name in hits:
                hits[name] += p[name] < LEVEL
    except ValueError:
        return None
    return hits


def _row(what: str, hits: dict[str, int], bar: str) -> Row:
    """The test in use with its binomial interval, beside others on the same draws."""
    low, high = binomial(hits["both"], DRAWS)
    ours = f"{100 * hits['both'] / DRAWS:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
    instead = ", ".join(f"{name} {100 * count / DRAWS:.1f} %" for name, count in hits.items() if name != "both")
    return Row(what, ours, instead, bar=bar)


def _p_of(a: Side, b: Side, part: int, paired: bool) -> float:
    """What results/difference.py makes of one figure a process; 1 where it refuses to test."""
    first, second = ({number: figures[part] for number, figures in side.items()} for side in (a, b))
    evidence = weigh_difference(first, second, paired=paired)
    return 1.0 if evidence is None else evidence.p


def others(a: list[float], b: list[float], paired: bool, rounds: int = 999) -> dict[str, float]:
    """p of the same t test without trimming, of a permutation test of mean logs (paired: of their signs), and of the
    exact test of ranks (Mann-Whitney; paired: Wilcoxon)."""
    first, second = np.log(a), np.log(b)
    student, ranked = (stats.ttest_rel, stats.wilcoxon) if paired else (stats.ttest_ind, stats.mannwhitneyu)
    permuted = stats.permutation_test(
        (first, second),
        lambda x, y, axis: (y - x).mean(axis) if paired else y.mean(axis) - x.mean(axis),
        permutation_type="samples" if paired else "independent",
        vectorized=True,
        n_resamples=rounds,
        rng=len(a),
    )
    untrimmed = student(first, second) if paired else student(first, second, equal_var=False)
    found = {"untrimmed medians": untrimmed, "permuted medians": permuted, "ranks": ranked(first, second)}
    return {name: float(one.pvalue) for name, one in found.items()}


def binomial(hits: int, draws: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's exact interval (1934) of a share; draws from one pool overlap, so it is a little short."""
    found = stats.binomtest(hits, draws).proportion_ci(level, "exact")
    return float(found.low), float(found.high)


if __name__ == "__main__":
    from tests.bench import show

    parser = argparse.ArgumentParser("python -m tests.bench.alarms", description=__doc__)
    parser.add_argument("pool", type=Path, metavar="POOL.json")
    parser.add_argument("rounds", type=int, nargs="?", default=ROUNDS)
    given = parser.parse_args()
    print(show(run(given.pool, given.rounds)))

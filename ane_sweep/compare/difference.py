"""Are two timings different? The one place that decides it, for the report, for `compare` and for the nightly.

The unit of evidence is the process, not the call: samples of one process share its memory layout, its caches and its
luck, so a thousand of them say nothing about what the next process would give. Two timings are therefore compared by
one figure a process, on a log scale (a ratio is what people ask for, and scatter grows with the figure):
within one sweep round by round (from five rounds on), across sweeps side by side, in both cases by Student's t on
trimmed means (Yuen 1974), which a process that met a busy machine does not blind. With one process a side nothing can
be tested and the answer says so. Which test, and why: `python -m ane_sweep.bench alarms`, README "Rulings".
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ane_sweep.bridge.figures import Timing
from ane_sweep.compare.distributions import t_quantile, t_tail
from ane_sweep.stages._statistics import quantile

Timings = Sequence[Timing]  # of a record: one entry a process

LEVEL = 0.01
LEAST_PERCENT = 3.0  # a difference that is surely there but smaller is told, and no regression
FEWEST = 3  # processes a side: with two, the scatter is known so badly that only a landslide would show
# Shared rounds: fewer know the scatter of their differences so badly that side by side finds more; a drift that both
# sides share makes that test the more careful one.
PAIRED_FROM = 5
TRIM, TRIM_FROM = 5, 8  # one in five processes is cut off at either end (the usual 20 %), from eight on
RESOLUTION = 1e-3  # of a median: what the clock and rounding leave open, so that equal medians are not "no scatter"


@dataclass(frozen=True)
class Difference:
    """How much slower `b` is than `a`: ratio of the typical process medians, with its interval at 1 - level.

    p         two-sided; None when nothing can be tested
    of        the processes' figure that was compared: medians, lower quartiles
    verdict   slower | faster | same (no difference shown) | untested (with the reason in `why`)
    """

    ratio: float
    low: float | None
    high: float | None
    p: float | None
    verdict: str
    processes: tuple[int, int]
    why: str = ""
    of: str = "medians"

    @property
    def percent(self) -> float:
        """+10.0: b takes ten per cent longer."""
        return 100 * (self.ratio - 1)


def difference(
    a: Mapping[int, float], b: Mapping[int, float], *, paired: bool = False, level: float = LEVEL
) -> Difference:
    """Compare two timings given as {round: median of that round's process}, all in one unit and above 0.

    paired   the rounds are of one sweep, where both were timed within each round: drift hits both alike and cancels
    """
    if not a or not b:
        raise ValueError("a timing without a process cannot be compared")
    evidence = weigh(a, b, paired=paired)
    sizes = (len(a), len(b))
    if evidence is None:
        logs = [statistics.fmean(math.log(value) for value in side.values()) for side in (a, b)]
        return Difference(math.exp(logs[1] - logs[0]), None, None, None, "untested", sizes, too_few(sizes))
    reach = t_quantile(1 - level, evidence.freedom) * evidence.error
    verdict = "same" if evidence.p >= level else "slower" if evidence.mean > 0 else "faster"
    ratio, low, high = (math.exp(evidence.mean + step) for step in (0, -reach, reach))
    return Difference(ratio, low, high, evidence.p, verdict, sizes)


def timing_difference(
    a: Timings, b: Timings, *, name: str = "median_ms", paired: bool = False, level: float = LEVEL
) -> Difference:
    """Compare two records' `timings`. Latency is tested twice, each time at half the level, and the surer answer given:
    by the processes' medians, which is what is reported, and by their lower quartiles, which a busy machine disturbs far
    less, as it only ever adds time. Other figures (`load_ms`) are tested once. Raises ValueError without a process."""
    if name != "median_ms":
        return difference(figures(a, name), figures(b, name), paired=paired, level=level)
    by = [
        replace(difference(figures(a, key), figures(b, key), paired=paired, level=level / 2), of=of)
        for key, of in (("median_ms", "medians"), ("quartile_ms", "lower quartiles"))
    ]
    surest = min(by, key=lambda one: one.p if one.p is not None else 2.0)
    return surest if surest.p is None else replace(surest, p=min(1.0, 2 * surest.p))


def figures(timings: Timings, name: str) -> dict[int, float]:
    """{round: one figure of that round's process}; `quartile_ms` is the lower quartile of its samples."""
    if name == "quartile_ms":
        return {timing.round: quantile(timing.samples_ms or [timing.median_ms], 0.25) for timing in timings}
    return {timing.round: getattr(timing, name) for timing in timings if getattr(timing, name)}


@dataclass(frozen=True)
class Evidence:
    """A difference of mean logs, its standard error, and the degrees of freedom with which that is known."""

    mean: float
    error: float
    freedom: float

    @property
    def p(self) -> float:
        return t_tail(self.mean / self.error, self.freedom)


def weigh(a: Mapping[int, float], b: Mapping[int, float], *, paired: bool = False) -> Evidence | None:
    """Student's t on trimmed means; None where there are too few processes for one."""
    shared = sorted(a.keys() & b.keys()) if paired else []
    if len(shared) >= PAIRED_FROM:
        only = middle([math.log(b[number] / a[number]) for number in shared])
        return Evidence(only.mean, math.sqrt(only.square), only.count - 1.0)
    if min(len(a), len(b)) < FEWEST:
        return None
    one, two = (middle([math.log(value) for value in side.values()]) for side in (a, b))
    both = one.square + two.square  # degrees of freedom: Welch 1947, Satterthwaite 1946
    freedom = both**2 / (one.square**2 / (one.count - 1) + two.square**2 / (two.count - 1))
    return Evidence(two.mean - one.mean, math.sqrt(both), freedom)


def too_few(sizes: tuple[int, int]) -> str:
    """Why so few processes prove nothing, and what would."""
    least = min(sizes)
    return (
        f"{least} process{'es' if least > 1 else ''} a side: how much processes differ by chance is not known, so no "
        f"difference can be shown at {LEVEL:.0%}; time with latency.repeats=8 ({FEWEST} at the very least)"
    )


@dataclass(frozen=True)
class Middle:
    """The mean of the middle of a sample, its squared standard error, and how many values it rests on."""

    mean: float
    square: float
    count: int


def middle(logs: Sequence[float]) -> Middle:
    """Trimmed mean: from 8 values on, a fifth is cut off at either end; fewer keep all.

    Squared standard error (n - 1) s_w^2 / (h (h - 1)) with s_w the winsorised standard deviation and h the values left
    (Tukey and McLaughlin 1963, Yuen 1974); without trimming that is the usual one. Never below what the clock leaves open.
    """
    count = len(logs)
    cut = count // TRIM if count >= TRIM_FROM else 0
    ordered, left = sorted(logs), count - 2 * cut
    kept = ordered[cut : count - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    spread = max(statistics.variance(winsorised), RESOLUTION**2)
    return Middle(statistics.fmean(kept), (count - 1) * spread / (left * (left - 1)), left)


def interval(medians: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Where the typical process median lies (t interval on the log scale); None with fewer than two processes."""
    if len(medians) < 2:
        return None
    found = middle([math.log(value) for value in medians])
    reach = t_quantile(level, found.count - 1.0) * math.sqrt(found.square)
    return math.exp(found.mean - reach), math.exp(found.mean + reach)


def holm(ps: Sequence[float | None], level: float = LEVEL) -> list[bool]:
    """Which of several tests hold when the chance of even one false alarm among them is to stay at `level` (Holm 1979)."""
    order = sorted((i for i, p in enumerate(ps) if p is not None), key=lambda i: ps[i] or 0.0)
    held = [False] * len(ps)
    for rank, i in enumerate(order):
        if (ps[i] or 0.0) >= level / (len(order) - rank):
            break
        held[i] = True
    return held

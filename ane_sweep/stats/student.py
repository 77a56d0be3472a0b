"""Test differences between processes (the unit of evidence: see results/difference.py) with Student's t on trimmed means."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FEWEST = 3  # processes a side: with two, the scatter is known so badly that only a landslide would show
# Shared rounds: fewer know the scatter of their differences so badly that side by side finds more; a drift that both
# sides share makes that test the more careful one.
PAIRED_FROM = 5
TRIM, TRIM_FROM = 5, 8  # one in five processes is cut off at either end (the usual 20 %), from eight on
RESOLUTION = 1e-3  # of a median: what the clock and rounding leave open, so that equal medians are not "no scatter"


def t_tail(t: float, freedom: float) -> float:
    """Return P(|T| >= |t|) of Student's t with `freedom` degrees of freedom, freedom > 0."""
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))


def t_quantile(level: float, freedom: float) -> float:
    """Return the t for which |T| < t with probability `level` (0.99 and 10 give 3.169)."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


@dataclass(frozen=True)
class TrimmedMean:
    """The mean of the middle of a sample, its squared standard error, and the number of values in that middle."""

    mean: float
    square: float
    count: int


def trimmed_mean(logs: Sequence[float]) -> TrimmedMean:
    """Return the trimmed mean: from 8 values on, a fifth is cut off at either end; fewer keep all.

    Squared standard error (n - 1) s_w^2 / (h (h - 1)) with s_w the winsorised standard deviation and h the values that
    remain (Tukey and McLaughlin 1963, Yuen 1974); without trimming it is the usual standard error. It is never below
    the resolution of the clock.
    """
    count = len(logs)
    cut = count // TRIM if count >= TRIM_FROM else 0
    ordered, left = sorted(logs), count - 2 * cut
    kept = ordered[cut : count - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    spread = max(statistics.variance(winsorised), RESOLUTION**2)
    return TrimmedMean(statistics.fmean(kept), (count - 1) * spread / (left * (left - 1)), left)


@dataclass(frozen=True)
class MeanDifference:
    """A difference of mean logs, its standard error, and the degrees of freedom of that error."""

    mean: float
    error: float
    freedom: float

    @property
    def p(self) -> float:
        """Return the two-sided p value of the hypothesis that there is no difference."""
        return t_tail(self.mean / self.error, self.freedom)


def weigh_difference(a: Mapping[int, float], b: Mapping[int, float], *, paired: bool = False) -> MeanDifference | None:
    """Return the mean difference of the logs of two timings, each {round: positive figure of that round's process}.

    None if there are too few processes for a test. It equals scipy.stats.ttest_rel and ttest_ind(equal_var=False,
    trim=0.2) of the logs, except for the resolution of the clock.
    """
    shared = sorted(a.keys() & b.keys()) if paired else []
    if len(shared) >= PAIRED_FROM:
        only = trimmed_mean([math.log(b[number] / a[number]) for number in shared])
        return MeanDifference(only.mean, math.sqrt(only.square), only.count - 1.0)
    if min(len(a), len(b)) < FEWEST:
        return None
    one, two = (trimmed_mean([math.log(value) for value in side.values()]) for side in (a, b))
    both = one.square + two.square  # degrees of freedom: Welch 1947, Satterthwaite 1946
    freedom = both**2 / (one.square**2 / (one.count - 1) + two.square**2 / (two.count - 1))
    return MeanDifference(two.mean - one.mean, math.sqrt(both), freedom)


def typical_interval(medians: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Return the interval of the typical process median (t interval on the log scale), or None with fewer than two processes."""
    if len(medians) < 2:
        return None
    found = trimmed_mean([math.log(value) for value in medians])
    reach = t_quantile(level, found.count - 1.0) * math.sqrt(found.square)
    return math.exp(found.mean - reach), math.exp(found.mean + reach)


def holm(ps: Sequence[float | None], level: float) -> list[bool]:
    """Return for each test whether it is significant, such that the chance of any false alarm among all stays at
    `level` (Holm 1979).

    scipy's false_discovery_control bounds the share of false alarms, a weaker promise.
    """
    order = sorted((i for i, p in enumerate(ps) if p is not None), key=lambda i: ps[i] or 0.0)
    held = [False] * len(ps)
    for rank, i in enumerate(order):
        if (ps[i] or 0.0) >= level / (len(order) - rank):
            break
        held[i] = True
    return held

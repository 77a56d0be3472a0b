"""Are two timings different? The one place that decides it, for the report, for `compare` and for the nightly.

The unit of evidence is the process, not the call: samples of one process share its memory layout, its caches and its
luck, so a thousand of them say nothing about what the next process would give. Two timings are therefore compared by
the medians of their processes, on a log scale (a ratio is what people ask for, and scatter grows with the figure):
within one sweep round by round (paired t), across sweeps by Welch's t test. With one process a side nothing can be
tested and the answer says so. Which test, and why: `python -m ane_sweep.bench alarms`, README "Rulings".
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ane_sweep.compare.distributions import t_quantile, t_tail

LEVEL = 0.01
FEWEST = 3  # processes a side: with two, the scatter is known so badly that only a landslide would show
RESOLUTION = 1e-3  # of a median: what the clock and rounding leave open, so that equal medians are not "no scatter"


@dataclass(frozen=True)
class Difference:
    """How much slower `b` is than `a`: ratio of the typical process medians, with its interval at 1 - level.

    p         two-sided; None when nothing can be tested
    verdict   slower | faster | same (no difference shown) | untested (with the reason in `why`)
    """

    ratio: float
    low: float | None
    high: float | None
    p: float | None
    verdict: str
    processes: tuple[int, int]
    why: str = ""

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
    shared = sorted(a.keys() & b.keys())
    if paired and len(shared) >= FEWEST:
        logs = [math.log(b[number] / a[number]) for number in shared]
        mean = statistics.fmean(logs)
        error, freedom = _error(logs), len(logs) - 1.0
        sizes = (len(shared), len(shared))
    else:
        first, second = ([math.log(value) for value in side.values()] for side in (a, b))
        if not first or not second:
            raise ValueError("a timing without a process cannot be compared")
        mean, sizes = statistics.fmean(second) - statistics.fmean(first), (len(first), len(second))
        if min(sizes) < FEWEST:
            return Difference(math.exp(mean), None, None, None, "untested", sizes, too_few(sizes))
        error, freedom = _welch(first, second)
    p = t_tail(mean / error, freedom)
    reach = t_quantile(1 - level, freedom) * error
    verdict = "same" if p >= level else "slower" if mean > 0 else "faster"
    return Difference(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), p, verdict, sizes)


def too_few(sizes: tuple[int, int]) -> str:
    """Why so few processes prove nothing, and what would."""
    least = min(sizes)
    return (
        f"{least} process{'es' if least > 1 else ''} a side: how much processes differ by chance is not known, so no "
        f"difference can be shown at {LEVEL:.0%}; time with latency.repeats=8 ({FEWEST} at the very least)"
    )


def _error(logs: Sequence[float]) -> float:
    """Standard error of the mean; never below what the clock leaves open."""
    return max(statistics.stdev(logs), RESOLUTION) / math.sqrt(len(logs))


def _welch(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Standard error of a difference of means and its degrees of freedom (Welch 1947, Satterthwaite 1946)."""
    one, two = _error(first) ** 2, _error(second) ** 2
    freedom = (one + two) ** 2 / (one**2 / (len(first) - 1) + two**2 / (len(second) - 1))
    return math.sqrt(one + two), freedom


def interval(medians: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Where the typical process median lies (t interval on the log scale); None with fewer than two processes."""
    if len(medians) < 2:
        return None
    logs = [math.log(value) for value in medians]
    reach = t_quantile(level, len(logs) - 1.0) * _error(logs)
    middle = statistics.fmean(logs)
    return math.exp(middle - reach), math.exp(middle + reach)


def holm(ps: Sequence[float | None], level: float = LEVEL) -> list[bool]:
    """Which of several tests hold when the chance of even one false alarm among them is to stay at `level` (Holm 1979)."""
    order = sorted((i for i, p in enumerate(ps) if p is not None), key=lambda i: ps[i] or 0.0)
    held = [False] * len(ps)
    for rank, i in enumerate(order):
        if (ps[i] or 0.0) >= level / (len(order) - rank):
            break
        held[i] = True
    return held

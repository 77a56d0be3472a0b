"""The statistical test of whether two timings differ, for the report, for `compare` and for the nightly.

The unit of evidence is the process, not the call: samples of one process share its memory layout, its caches and its
luck, so a thousand of them do not predict the next process. Two timings are therefore compared by one figure a process,
on a log scale (people want a ratio, and scatter grows with the figure): within one sweep round by round (from five
rounds on), across sweeps side by side, in both cases by Student's t on trimmed means (Yuen 1974), which tolerate a
process on a busy machine. With one process per side no test is possible, and the answer says so. The choice of test:
`python -m tests.bench alarms`, ane_sweep/docs/rulings.md.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ane_sweep.bridge.figures import Timing
from ane_sweep.stats.samples import quantile
from ane_sweep.stats.student import FEWEST, t_quantile, weigh_difference

Timings = Sequence[Timing]  # of a record: one entry a process

LEVEL = 0.01
LEAST_PERCENT = 3.0  # a smaller difference, however sure, is reported but is no regression


@dataclass(frozen=True)
class Difference:
    """How much slower `b` is than `a`: ratio of the typical process medians, with its interval at 1 - level.

    p         two-sided p value; None if no test is possible
    of        the compared figure of the processes: medians, lower quartiles
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
        """Return by how many per cent b is slower: +10.0 is ten per cent."""
        return 100 * (self.ratio - 1)


def compare_rounds(
    a: Mapping[int, float], b: Mapping[int, float], *, paired: bool = False, level: float = LEVEL
) -> Difference:
    """Compare two timings given as {round: median of that round's process}, all in one unit and above 0.

    paired   both were timed in each round of one sweep, so that drift affects both equally and cancels
    """
    if not a or not b:
        raise ValueError("a timing without a process cannot be compared")
    evidence = weigh_difference(a, b, paired=paired)
    sizes = (len(a), len(b))
    if evidence is None:
        logs = [statistics.fmean(math.log(value) for value in side.values()) for side in (a, b)]
        return Difference(math.exp(logs[1] - logs[0]), None, None, None, "untested", sizes, explain_too_few(sizes))
    reach = t_quantile(1 - level, evidence.freedom) * evidence.error
    verdict = "same" if evidence.p >= level else "slower" if evidence.mean > 0 else "faster"
    ratio, low, high = (math.exp(evidence.mean + step) for step in (0, -reach, reach))
    return Difference(ratio, low, high, evidence.p, verdict, sizes)


def compare_timings(
    a: Timings, b: Timings, *, name: str = "median_ms", paired: bool = False, level: float = LEVEL
) -> Difference:
    """Compare two records' `timings`. Latency is tested twice, each time at half the level, and the surer answer
    counts: by the processes' medians, which are reported, and by their lower quartiles, which a busy machine affects
    far less, as it only adds time. Other figures (`load_ms`) are tested once. Raises ValueError without a process.
    """
    if name != "median_ms":
        return compare_rounds(figures_by_round(a, name), figures_by_round(b, name), paired=paired, level=level)
    found = []
    for key, of in (("median_ms", "medians"), ("quartile_ms", "lower quartiles")):
        sides = (figures_by_round(side, key) for side in (a, b))
        found.append(replace(compare_rounds(*sides, paired=paired, level=level / 2), of=of))
    surest = min(found, key=lambda one: one.p if one.p is not None else 2.0)
    return surest if surest.p is None else replace(surest, p=min(1.0, 2 * surest.p))


def figures_by_round(timings: Timings, name: str) -> dict[int, float]:
    """Return {round: figure of that round's process}; `quartile_ms` is the lower quartile of its samples."""
    if name == "quartile_ms":
        return {timing.round: quantile(timing.samples_ms or [timing.median_ms], 0.25) for timing in timings}
    return {timing.round: getattr(timing, name) for timing in timings if getattr(timing, name)}


def explain_too_few(sizes: tuple[int, int]) -> str:
    """Return a sentence on why so few processes prove nothing, and how many are needed."""
    least = min(sizes)
    return (
        f"{least} process{'es' if least > 1 else ''} a side: how much processes differ by chance is not known, so no "
        f"difference can be shown at {LEVEL:.0%}; time with latency.repeats=8 ({FEWEST} at the very least)"
    )

"""Steps in a history: the nights when the latency changed for good, and a test of the last night.

The unit of evidence is the night, not the process: even if the processes of a night agree, nights differ. Both tests
assume that nights are exchangeable while nothing changes; a machine that drifts slowly for weeks violates that and
shows a step where the drift is steepest.
"""

import itertools
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ane_sweep.stats.ranks import ranks
from ane_sweep.stats.student import t_tail

SHORTEST = 2  # nights on either side of a step
FEWEST = 10  # nights: with fewer, even a perfect step is no surprise at 1 % (5 against 5: 2 in 252)
FEWEST_BEFORE = 5  # nights that the last one is held against
DRAWS = 10_000
_SAME = 1e-9


@dataclass(frozen=True)
class Step:
    """A change of level at night `index`: medians before and after, up to the neighbouring steps."""

    index: int
    before: float
    after: float
    p: float

    @property
    def percent(self) -> float:
        return 100 * (self.after / self.before - 1)


def steps(levels: Sequence[float], level: float = 0.01) -> list[Step]:
    """Return all steps, oldest first, by binary segmentation (Vostrikova 1981).

    The largest standardised rank sum over all cuts is compared with that of shuffled series of the same length; if it
    exceeds them at `level`, both sides are searched again. A rank test assumes no distribution and ignores one odd
    night.
    """
    cuts = dict(_cuts(levels, 0, level))
    edges = [0, *sorted(cuts), len(levels)]
    middles = [statistics.median(levels[a:b]) for a, b in itertools.pairwise(edges)]
    return [Step(cut, middles[i], middles[i + 1], cuts[cut]) for i, cut in enumerate(sorted(cuts))]


def _cuts(levels: Sequence[float], offset: int, level: float) -> list[tuple[int, float]]:
    if len(levels) < FEWEST:
        return []
    cut, height = highest(ranks(levels).tolist())
    p = chance(len(levels), height)
    if p >= level:
        return []
    before, after = _cuts(levels[:cut], offset, level), _cuts(levels[cut:], offset + cut, level)
    return [*before, (offset + cut, p), *after]


def highest(ranked: Sequence[float]) -> tuple[int, float]:
    """Return (cut, height): the cut whose rank sum before it deviates most from its mean, and the deviation in standard
    deviations.

    Mean k (n + 1) / 2 and variance k (n - k) (n + 1) / 12 (Wilcoxon 1945).
    """
    count, total, best = len(ranked), 0.0, (0, 0.0)
    for k in range(1, count):
        total += ranked[k - 1]
        if SHORTEST <= k <= count - SHORTEST:
            height = abs(total - k * (count + 1) / 2) / math.sqrt(k * (count - k) * (count + 1) / 12)
            if height > best[1]:
                best = k, height
    return best


def chance(count: int, height: float) -> float:
    """Return the share of shuffles of `count` nights that reach this height; never below one in 10,001."""
    return (1 + sum(other >= height - _SAME for other in _shuffled(count))) / (1 + DRAWS)


@cache
def _shuffled(count: int) -> tuple[float, ...]:
    drawn, ranked = random.Random(count), [float(i) for i in range(1, count + 1)]
    heights = []
    for _ in range(DRAWS):
        drawn.shuffle(ranked)
        heights.append(highest(ranked)[1])
    return tuple(heights)


def stands_out(before: Sequence[float], last: float) -> float | None:
    """Return the probability that a further night deviates as far as `last`, by a t prediction interval on the log
    scale.

    None with fewer than 5 nights before.
    """
    if len(before) < FEWEST_BEFORE:
        return None
    logs = [math.log(level) for level in before]
    spread = max(statistics.stdev(logs), 1e-3) * math.sqrt(1 + 1 / len(logs))
    return t_tail((math.log(last) - statistics.fmean(logs)) / spread, len(logs) - 1.0)

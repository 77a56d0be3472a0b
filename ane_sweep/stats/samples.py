"""Summarise the samples of one process.

Quantiles are "linear" (method 7 of Hyndman and Fan, the default of numpy and R): the value at position (n - 1) q of
the sorted samples, interpolated between neighbours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95  # of the interval around a median
P99_NEEDS = 100  # samples: with fewer, the 99th percentile is little more than the largest
_RESAMPLES = 1000
_MOST_DRAWN = 200  # samples a resample: a median of more does not get narrower than the noise of the machine


@dataclass(frozen=True)
class Summary:
    """A summary of n samples, in the samples' own unit. low, high: a 95 % bootstrap interval of the median, within this process."""

    count: int
    median: float
    iqr: float
    p90: float
    p99: float | None
    low: float
    high: float

    @property
    def iqr_share(self) -> float:
        """Return the IQR as a share of the median; 0 when both are 0."""
        return self.iqr / self.median if self.median else (0.0 if not self.iqr else math.inf)


def quantile(samples: Sequence[float], q: float) -> float:
    """Return the q-quantile, 0 <= q <= 1. Raises ValueError without samples."""
    if not samples:
        raise ValueError("no samples to take a quantile of")
    return float(np.quantile(samples, q))


def summarise(samples: Sequence[float]) -> Summary:
    """Return median, interquartile range, 90th and (of 100 or more) 99th percentile, interval. ValueError without samples."""
    iqr = quantile(samples, 0.75) - quantile(samples, 0.25)
    p99 = quantile(samples, 0.99) if len(samples) >= P99_NEEDS else None
    return Summary(len(samples), quantile(samples, 0.5), iqr, quantile(samples, 0.9), p99, *bootstrap(samples))


def bootstrap(samples: Sequence[float], level: float = LEVEL, seed: int = 0) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the median (Efron 1979), the same for the same samples.

    It knows the scatter within one process only; the scatter between processes needs repeats (`latency.repeats`).
    """
    drawn = np.random.default_rng(seed).choice(samples, (_RESAMPLES, min(len(samples), _MOST_DRAWN)))
    low, high = np.quantile(np.median(drawn, axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def median_interval(samples: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Return the narrowest interval between order statistics, symmetric about the middle, that holds the true median
    with `confidence`.

    x_(k) .. x_(n+1-k) holds it with probability 1 - 2 P(Binomial(n, 1/2) < k) (David and Nagaraja, Order Statistics,
    7.1). None if even the extremes hold it with less, or if a timing is not positive.
    """
    from scipy.special import bdtr

    ordered = sorted(samples)
    count = len(ordered)
    if count < least_samples(confidence) or ordered[0] <= 0:
        return None
    rank = int((bdtr(np.arange(count), count, 0.5) <= (1 - confidence) / 2).sum())
    return ordered[rank - 1], ordered[count - rank]


def least_samples(confidence: float) -> int:
    """Return the least number of samples for which `median_interval` gives an interval."""
    return math.ceil(1 - math.log2(1 - confidence))

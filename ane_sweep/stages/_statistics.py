"""Statistics of a list of timings, in plain Python.

Quantiles are "linear" (method 7 of Hyndman and Fan, the default of numpy and R): the value at position (n - 1) q of
the sorted samples, interpolated between neighbours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

UNSTABLE_IQR_SHARE = 0.25  # of the median: beyond this a figure deserves doubt (an idle shared host stays below 0.1)


@dataclass(frozen=True)
class Summary:
    """Of n samples, all in the samples' own unit."""

    count: int
    median: float
    iqr: float
    p90: float

    @property
    def iqr_share(self) -> float:
        """IQR as a share of the median; 0 when both are 0."""
        return self.iqr / self.median if self.median else (0.0 if not self.iqr else math.inf)


def quantile(samples: Sequence[float], q: float) -> float:
    """The q-quantile, 0 <= q <= 1. Raises ValueError without samples."""
    if not samples:
        raise ValueError("no samples to take a quantile of")
    ordered = sorted(samples)
    position = (len(ordered) - 1) * q
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def summarise(samples: Sequence[float]) -> Summary:
    """Median, interquartile range and 90th percentile. Raises ValueError without samples."""
    iqr = quantile(samples, 0.75) - quantile(samples, 0.25)
    return Summary(len(samples), quantile(samples, 0.5), iqr, quantile(samples, 0.9))


def instability(summary: Summary) -> str | None:
    """What to say about samples that scatter too much; None when they do not. One text, so that reports can count it."""
    if summary.iqr_share <= UNSTABLE_IQR_SHARE:
        return None
    return f"timing is unstable: the middle half of the samples spreads over more than {UNSTABLE_IQR_SHARE:.0%} of their median"

"""Warnings about samples, each with a remedy. Each kind of warning has one fixed text, so that reports can count them."""

from ane_sweep.stats.samples import Summary, quantile
from ane_sweep.worker.timing.sampling import Samples

UNSTABLE_IQR_SHARE = 0.25  # of the median: beyond this a figure deserves doubt (an idle shared host stays below 0.1)
TREND_SHARE = 0.1  # between the medians of the first and the last third of the steady samples
FAR_OUT = 3.0  # times the IQR beyond the quartiles: Tukey's "far out" fence (Exploratory Data Analysis, 1977)
_FEWEST = 8  # samples: with fewer, neither outliers nor a trend can be told


def describe_instability(summary: Summary) -> str | None:
    """Return a warning if samples scatter too much to be quoted, else None. The warning makes a cell `degraded`."""
    if summary.iqr_share <= UNSTABLE_IQR_SHARE:
        return None
    return f"timing is unstable: the middle half of the samples spreads over more than {UNSTABLE_IQR_SHARE:.0%} of their median"


def list_notes(taken: Samples) -> list[str]:
    """Return the warnings about outliers and trends, which hardly change the median."""
    return [note for note in (describe_outliers(taken), describe_trend(taken)) if note]


def describe_outliers(taken: Samples) -> str | None:
    """Return a warning if steady samples lie beyond Tukey's far fence and the IQR is not zero, else None."""
    steady = taken.steady_s
    if len(steady) < _FEWEST:
        return None
    low, high = quantile(steady, 0.25), quantile(steady, 0.75)
    reach = FAR_OUT * (high - low)
    if not reach or not any(not low - reach <= sample <= high + reach for sample in steady):
        return None
    return (
        "far outliers among the samples: something else ran now and then; close it, or take more samples "
        "(latency.samples) so that the percentiles are of this program"
    )


def describe_trend(taken: Samples) -> str | None:
    """Return a warning if the first and last third of the steady samples differ by more than their scatter, else None."""
    third = len(taken.steady_s) // 3
    if len(taken.steady_s) < _FEWEST:
        return None
    first, last = taken.steady_s[:third], taken.steady_s[-third:]
    before, after = quantile(first, 0.5), quantile(last, 0.5)
    if abs(before - after) <= TREND_SHARE * after:
        return None
    if quantile(first, 0.25) > quantile(last, 0.75):
        return "the samples were still getting faster: more warm-ups (latency.warmup) would leave only the steady ones"
    if quantile(first, 0.75) < quantile(last, 0.25):
        return (
            "the samples were getting slower: heat or a busier machine; time again after a rest, with latency.repeats"
        )
    return None

"""The pooling of the processes that timed one program (`latency.repeats`) into one cell's figures."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ane_sweep.bridge.figures import Metric, Timing
from ane_sweep.bridge.metrics import METRICS
from ane_sweep.bridge.task import Realised, TaskResult
from ane_sweep.results.headline import MEASURED
from ane_sweep.stats.samples import P99_NEEDS, quantile
from ane_sweep.stats.student import typical_interval

UNSTABLE_BETWEEN_SHARE = 0.1  # standard deviation between processes, as a share of their mean


def pooled(results: Sequence[TaskResult]) -> tuple[list[Metric], Realised, list[Timing]]:
    """Return (metrics, realised, timings) pooled from one cell's latency tasks, in the order of their rounds.

    Every figure is the median over the processes, except: peak memory is the largest; the 90th and 99th
    percentile are taken from all samples together; the interval is that of the typical process, not within one; and
    `latency_between_ms` is the standard deviation between the processes' medians.
    """
    timings = [result.timing for result in results if result.timing is not None]
    if not results:
        return [], {}, []
    if len(results) == 1:
        return list(results[0].metrics), results[0].realised.copy(), timings
    found: dict[tuple[object, ...], list[Metric]] = defaultdict(list)
    for metric in (metric for result in results for metric in result.metrics):
        found[*metric.what, metric.source].append(metric)
    merged = []
    for metrics in found.values():
        values = [metric.value for metric in metrics if metric.value is not None]
        spec = METRICS.get(metrics[0].name)
        combine = max if spec and spec.over_processes == "largest" else statistics.median
        merged.append(replace(metrics[0], value=combine(values) if values else None))
    return _between(merged, timings), _realised(results, timings), timings


def _between(metrics: list[Metric], timings: list[Timing]) -> list[Metric]:
    medians = [timing.median_ms for timing in timings]
    samples = [sample for timing in timings for sample in timing.samples_ms]
    if len(medians) < 2:
        return metrics
    known = next((metric for metric in metrics if metric.name == MEASURED), metrics[0])
    low, high = typical_interval(medians) or (None, None)
    replaced = {
        "latency_p90_ms": quantile(samples, 0.9),
        "latency_p99_ms": quantile(samples, 0.99) if len(samples) >= P99_NEEDS else None,
        "latency_low_ms": low,
        "latency_high_ms": high,
        "latency_between_ms": statistics.stdev(medians),
    }
    kept = [metric for metric in metrics if metric.name not in replaced]
    added = [Metric(name, value, "ms", source=known.source) for name, value in replaced.items() if value is not None]
    return [*kept, *added, Metric("latency_processes", len(medians), "1", source=known.source)]


def _realised(results: Sequence[TaskResult], timings: list[Timing]) -> Realised:
    """Return the merged `realised` of the processes; `unstable` only if most of them are, or if they disagree."""
    realised: Realised = {}
    for result in results:
        realised |= result.realised
    unstable = [reason for result in results if (reason := result.realised.get("unstable"))]
    realised.pop("unstable", None)
    medians = [timing.median_ms for timing in timings]
    if 2 * len(unstable) > len(results):
        realised["unstable"] = unstable[0]
    elif len(medians) > 1 and statistics.stdev(medians) > UNSTABLE_BETWEEN_SHARE * statistics.fmean(medians):
        realised["unstable"] = (
            f"processes disagree: their medians scatter by more than {UNSTABLE_BETWEEN_SHARE:.0%}, so this machine was "
            "not quiet or the program has several speeds"
        )
    return realised


def in_vain(timings: Sequence[Timing]) -> str | None:
    """Return a warning if at least half of the processes timed a machine that never became quiet, else None."""
    found = [timing.gate.in_vain for timing in timings if timing.gate and timing.gate.in_vain]
    if not found or 2 * len(found) < len(timings):
        return None
    of = f" ({len(found)} of {len(timings)} processes)" if len(timings) > 1 else ""
    return f"timed while {' and '.join(dict.fromkeys(sentence for said in found for sentence in said))}{of}"

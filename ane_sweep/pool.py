"""Several processes that timed the same program, as one cell's figures: `latency.repeats`."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ane_sweep.stages import metric
from ane_sweep.stats.samples import P99_NEEDS, quantile
from ane_sweep.stats.student import interval

UNSTABLE_BETWEEN_SHARE = 0.1  # standard deviation between processes, as a share of their mean


def pooled(results: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]]]:
    """(metrics, realised, timings) of the results of one cell's latency tasks, in the order of their rounds.

    Of several processes every figure is the median over them, but: peak memory is the largest; the 90th and 99th
    percentile are those of all samples together; the interval is of the typical process, not within one; and
    `latency_between_ms` is the standard deviation between the processes' medians.
    """
    timings = [result["facts"]["timing"] for result in results if "timing" in result.get("facts", {})]
    if len(results) < 2:
        only = results[0] if results else {"metrics": [], "realised": {}}
        return list(only["metrics"]), dict(only["realised"]), timings
    merged = [_merged(entries) for entries in _by_name(results).values()]
    return _between(merged, timings), _realised(results, timings), timings


def _by_name(results: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for entry in (entry for result in results for entry in result["metrics"]):
        found.setdefault((entry["name"], entry["kind"], entry["chip"], entry["source"]), []).append(entry)
    return found


def _merged(entries: list[dict[str, Any]]) -> dict[str, Any]:
    values = [entry["value"] for entry in entries if entry["value"] is not None]
    combine = max if entries[0]["name"] == "peak_memory_bytes" else statistics.median
    return {**entries[0], "value": combine(values) if values else None}


def _between(metrics: list[dict[str, Any]], timings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    medians = [timing["median_ms"] for timing in timings]
    samples = [sample for timing in timings for sample in timing["samples_ms"]]
    if len(medians) < 2:
        return metrics
    known = next((entry for entry in metrics if entry["name"] == "latency_median_ms"), metrics[0])
    low, high = interval(medians) or (None, None)
    replaced = {
        "latency_p90_ms": quantile(samples, 0.9),
        "latency_p99_ms": quantile(samples, 0.99) if len(samples) >= P99_NEEDS else None,
        "latency_low_ms": low,
        "latency_high_ms": high,
        "latency_between_ms": statistics.stdev(medians),
    }
    kept = [entry for entry in metrics if entry["name"] not in replaced]
    added = [metric(name, value, "ms", source=known["source"]) for name, value in replaced.items() if value is not None]
    return [*kept, *added, metric("latency_processes", len(medians), "1", source=known["source"])]


def _realised(results: Sequence[Mapping[str, Any]], timings: list[dict[str, Any]]) -> dict[str, Any]:
    """What the processes say of themselves; `unstable` only where most of them are, or where they disagree."""
    realised: dict[str, Any] = {}
    for result in results:
        realised |= result["realised"]
    said = [result["realised"]["unstable"] for result in results if result["realised"].get("unstable")]
    realised.pop("unstable", None)
    medians = [timing["median_ms"] for timing in timings]
    if 2 * len(said) > len(results):
        realised["unstable"] = said[0]
    elif len(medians) > 1 and statistics.stdev(medians) > UNSTABLE_BETWEEN_SHARE * statistics.fmean(medians):
        realised["unstable"] = (
            f"processes disagree: their medians scatter by more than {UNSTABLE_BETWEEN_SHARE:.0%}, so this machine was "
            "not quiet or the program has several speeds"
        )
    return realised


def in_vain(timings: Sequence[Mapping[str, Any]]) -> str | None:
    """What the gate waited for in vain, where the cell's median rests on it: in half of the processes or more."""
    found = [said for timing in timings if (said := (timing.get("gate") or {}).get("in_vain"))]
    if not found or 2 * len(found) < len(timings):
        return None
    of = f" ({len(found)} of {len(timings)} processes)" if len(timings) > 1 else ""
    return f"timed while {' and '.join(dict.fromkeys(sentence for said in found for sentence in said))}{of}"

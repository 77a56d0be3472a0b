"""Figures as a tracker shows them: which of a record's metrics, under which names, in which order.

A metric is `<kind>.<name>`, `<kind>.<chip>.<name>` where it is of a chip, so that nobody plots two kinds as one. MLflow's
compare page sorts its rows by name (3.17, Utils.getKeys), so what nobody compares first is `rest.<kind>.<name>`: behind
the figures of `MAIN`. Its parallel coordinates open with the first metric, in logged order, that all runs have: the median
latency is the first of every run that has one.
"""

from dataclasses import replace

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.record import Record
from ane_sweep.tracking.naming import KEY_LIMIT, key, words

MAIN = (
    "latency_median_ms", "latency_iqr_ms", "psnr_db", "psnr_worst_db", "package_mb",  # measured
    "latency_ms", "cost_share_ane", "ops_share_ane",  # estimated; predicted or planned
    "perplexity", "accuracy", "label_agreement", "task_top1_agreement", "embedding_rank_agreement",  # where there is a score
    "throughput_per_s", "energy_ane_mj",  # where they were asked for
)  # fmt: skip
FIRST_METRIC = "measured.latency_median_ms"
_MB = 1e6


def metric_key(metric: Metric) -> str:
    """`measured.latency_median_ms`, `estimated.m4.latency_ms`, `rest.measured.convert_s`."""
    rest = None if metric.name in MAIN else "rest"
    return key(".".join(part for part in (rest, metric.label) if part))


def shown(record: Record) -> list[Metric]:
    """The record's metrics as a tracker has them: the package in MB, ops on the Neural Engine also as a share."""
    found = [_in_mb(metric) for metric in record.metrics]
    ops = {(m.kind, m.chip, m.name): m.value for m in record.metrics if m.name in ("ops_ane", "ops_total")}
    for metric in record.metrics:
        total = ops.get((metric.kind, metric.chip, "ops_total"))
        if metric.name == "ops_ane" and metric.value is not None and total:
            found.append(replace(metric, name="ops_share_ane", value=metric.value / total, unit="1"))
    return found


def _in_mb(metric: Metric) -> Metric:
    if metric.name != "package_bytes":
        return metric
    return replace(metric, name="package_mb", value=None if metric.value is None else metric.value / _MB, unit="MB")


def cell_metrics(record: Record) -> list[tuple[str, float, int]]:
    """(key, value, step 0) of every figure that is a finite number, median latency first."""
    found = {metric_key(metric): float(metric.value) for metric in shown(record) if metric.value is not None}
    ordered = sorted(found, key=lambda name: name != FIRST_METRIC)
    return [(name, found[name], 0) for name in ordered]


def latency_series(records: list[Record], axes: list[str]) -> list[tuple[str, float, int]]:
    """Median latency with step = chunks, a series per combination of the other varying axes."""
    points = []
    for record in records:
        value, chunks = record.value("latency_median_ms"), record.cell.get("chunks")
        chunks = record.realised.get("chunks") if chunks == "auto" else chunks
        if value is not None and isinstance(chunks, int):
            series = key(words(record, [axis for axis in axes if axis != "chunks"], {}).replace("=", " "))
            points.append((f"{FIRST_METRIC}/{series}"[:KEY_LIMIT], float(value), chunks))
    return points

"""Metrics as a tracker shows them: a selection of a record's metrics, their names and their order.

A metric is `<kind>.<name>`, `<kind>.<chip>.<name>` if it belongs to a chip, so that kinds never mix in one plot.
MLflow's compare page sorts its rows by name (3.17, Utils.getKeys), so a metric that few users compare is
`rest.<kind>.<name>` and comes after those that the registry (bridge/metrics.py) shows in MLflow; so is the time of a
check. Its parallel coordinates open with the first metric, in logged order, that all runs have: the headline latency is
the first of every run that has one.
"""

from dataclasses import replace

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.metrics import METRICS, shown_in
from ane_sweep.bridge.record import Record
from ane_sweep.results.headline import MEASURED, headline, is_check
from ane_sweep.tracking.naming import KEY_LIMIT, key, words

MEASURED_KEY = f"{METRICS[MEASURED].kind}.{METRICS[MEASURED].tracked_name}"


def headline_key(record: Record) -> str | None:
    """Return MLflow's key of a cell's headline latency, or None if it has none."""
    if (found := headline(record)) is None:
        return None
    return MEASURED_KEY if found.chip is None else f"{found.kind}.{found.chip}.latency_ms"


def metric_key(metric: Metric) -> str:
    """Return MLflow's key: `measured.latency_median_ms`, `estimated.m4.latency_ms`, `rest.measured.convert_s`."""
    rest = None if metric.name in {spec.tracked_name for spec in shown_in("mlflow")} else "rest"
    return key(".".join(part for part in (rest, metric.label) if part))


def named_metrics(record: Record) -> dict[str, float]:
    """Return MLflow's key -> value of every known metric of a record."""
    known = {metric_key(one): float(one.value) for one in list_tracked_metrics(record) if one.value is not None}
    rest = "rest.measured.latency_" if is_check(record) else "measured.latency_"
    return {
        name.replace("measured.latency_", rest) if name.startswith("measured") else name: known[name] for name in known
    }


def list_tracked_metrics(record: Record) -> list[Metric]:
    """Return the record's metrics for a tracker: the package in MB, and ops on the Neural Engine also as a share."""
    found = [_scaled(metric) for metric in record.metrics]
    for spec in shown_in("mlflow"):
        if spec.ratio is None:
            continue
        wholes = {(metric.kind, metric.chip): metric.value for metric in record.metrics if metric.name == spec.ratio[1]}
        for metric in record.metrics:
            whole = wholes.get((metric.kind, metric.chip))
            if metric.name == spec.ratio[0] and metric.value is not None and whole:
                found.append(replace(metric, name=spec.name, value=metric.value / whole, unit=spec.unit))
    return found


def _scaled(metric: Metric) -> Metric:
    """Return a metric in its shown unit and the name for that unit, if the registry shows it in another unit."""
    spec = METRICS.get(metric.name)
    if spec is None or spec.scale is None or "mlflow" not in spec.shows:
        return metric
    value = None if metric.value is None else metric.value / spec.divisor
    return replace(metric, name=spec.tracked_name, value=value, unit=spec.shown_unit)


def cell_metrics(record: Record) -> list[tuple[str, float, int]]:
    """Return (key, value, step 0) of every known metric, the headline latency first."""
    found, first = named_metrics(record), headline_key(record)
    return [(name, found[name], 0) for name in sorted(found, key=lambda name: name != first)]


def latency_series(records: list[Record], axes: list[str]) -> list[tuple[str, float, int]]:
    """Return the measured headline latency with step = chunks, a series for each combination of the other varying axes.

    MLflow's list shows the last step alone: as a sweep's figure the estimate of the most chunks would mislead.
    """
    points = []
    for record in records:
        found, chunks = headline(record), record.cell.get("chunks")
        chunks = record.realised.get("chunks") if chunks == "auto" else chunks
        if found is not None and found.kind == "measured" and isinstance(chunks, int):
            series = key(words(record, [axis for axis in axes if axis != "chunks"], {}).replace("=", " "))
            points.append((f"{MEASURED_KEY}/{series}"[:KEY_LIMIT], float(found.ms), chunks))
    return points

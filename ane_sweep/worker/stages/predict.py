"""predict: predicts the unit of each op of a program on chips that need not be here. Any host, cached.

params  chips (["m1", "m4", ...]), compute_units ("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne")
inputs  program: model.mlpackage or chunk_01.mlpackage ...
leaves  placement.predicted.<chip>.json, one per chip: the record's placement entry, the gates, the latency estimate
        with its anchor and band, and one row an op

Metrics are of kind "predicted" (the latency: "estimated") and carry the chip. Nothing here was measured.
"""

import json
from pathlib import Path
from typing import Literal

from ane_sweep.bridge.figures import Metric, as_plain
from ane_sweep.bridge.stages import Stage
from ane_sweep.machine.calibrated import find_measurements
from ane_sweep.mil import package
from ane_sweep.placement import chips, predict, programs
from ane_sweep.placement.types import Placement
from ane_sweep.worker import params
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=70, many="predictions", timeout_s=600, memory_gib=4, base_gib=0.2, per_byte=0.0, base_s=0.3, per_gb_s=0.15,
    artifact=True, reads=("placement/data/**/*",),
    warm=("ane_sweep.mil.chunker", "ane_sweep.placement.predict"), packages=True,
)  # fmt: skip

SCHEMA = 1
_SOURCE = "ane_sweep/placement: rules and cost model of an M4, see METHOD.md"


class Params(params.Params, frozen=True):
    """Parameters of this stage; see the module's docstring."""

    chips: list[str]
    compute_units: str
    measured: str | None = None


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Predict for each chip. Raises PackageError for an unreadable program, ConfigError for an unknown chip or units."""
    settings = Params.read(params)
    selected = [chips.get(name, find_measurements) for name in settings.chips]
    loaded = programs.load_chain(package.program_paths(inputs["program"]))
    result = StageResult()
    for chip in selected:
        prediction = predict.predict_chain(loaded, chip, settings.compute_units)
        summary = prediction.summary()
        result.placement.append(summary)
        result.metrics += _list_metrics(summary, prediction)
        content = {
            "schema": SCHEMA,
            **as_plain(summary),
            "estimate": prediction.estimate_entry(),
            "table": prediction.table(),
        }
        (out / f"placement.predicted.{chip.chip}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    return result


def list_placement_metrics(
    summary: Placement, kind: Literal["predicted", "planned"], source: str, chip: str | None = None
) -> list[Metric]:
    """Return the figures of a placement: ops of each unit, the Neural Engine's share of the cost, segments, transitions."""
    figures = {f"ops_{unit}": count for unit, count in vars(summary.ops).items()}
    figures |= {"cost_share_ane": summary.cost_share.ane}
    figures |= {"segments": summary.segments, "transitions": summary.transitions}
    return [Metric(name, value, "1", kind=kind, source=source, chip=chip) for name, value in figures.items()]


def _list_metrics(summary: Placement, prediction: predict.Prediction) -> list[Metric]:
    chip = summary.chip
    metrics = list_placement_metrics(summary, "predicted", _SOURCE, chip)
    estimate = prediction.estimate
    if estimate is None:  # the summary says why
        return metrics
    for name, value in (("latency", estimate.ms), ("latency_low", estimate.low_ms), ("latency_high", estimate.high_ms)):
        metrics.append(Metric(f"{name}_ms", value, "ms", kind="estimated", source=estimate.anchor, chip=chip))
    return metrics

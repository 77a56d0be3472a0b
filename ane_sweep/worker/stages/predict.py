"""predict: where each op of a program is expected to run, on chips that are not here. Any host, cached.

params  chips (["m1", "m4", ...]), compute_units ("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne")
inputs  program: model.mlpackage or chunk_01.mlpackage ...
leaves  placement.predicted.<chip>.json, one per chip: the record's placement entry, the gates, the latency estimate
        with its anchor and band, and one row an op

Metrics are of kind "predicted" (the latency: "estimated") and carry the chip. Nothing here was measured.
"""

import json
from pathlib import Path
from typing import Any

from ane_sweep.bridge.figures import Metric, Placement, as_plain
from ane_sweep.bridge.stages import Stage
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=70, many="predictions", timeout_s=600, memory_gib=4, base_gib=0.2, per_byte=0.0, guess_s=0.5, guess_per_gb=1,
    artifact=True, reads=("placement/data/**/*",),
    warm=("ane_sweep.mil.chunker", "ane_sweep.placement.predict"),
)  # fmt: skip

SCHEMA = 1
_SOURCE = "ane_sweep/placement: rules and cost model of an M4, see METHOD.md"


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """Raises PackageError for a program that cannot be read, ConfigError for an unknown chip or units."""
    from ane_sweep.mil import package
    from ane_sweep.placement import chips, predict, programs

    wanted = [chips.get(name) for name in params["chips"]]
    loaded = programs.load_chain(package.program_paths(inputs["program"]))
    result = StageResult()
    for chip in wanted:
        prediction = predict.predict_chain(loaded, chip, params["compute_units"])
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


def _list_metrics(summary: Placement, prediction: Any) -> list[Metric]:
    chip = summary.chip

    def predicted(name: str, value: float) -> Metric:
        return Metric(name, value, "1", kind="predicted", source=_SOURCE, chip=chip)

    found = [predicted(f"ops_{unit}", count) for unit, count in vars(summary.ops).items()]
    found.append(predicted("cost_share_ane", summary.cost_share.ane))
    found += [predicted("segments", summary.segments), predicted("transitions", summary.transitions)]
    estimate = prediction.estimate
    if estimate is None:  # the summary says why
        return found
    for name, value in (("latency", estimate.ms), ("latency_low", estimate.low_ms), ("latency_high", estimate.high_ms)):
        found.append(Metric(f"{name}_ms", value, "ms", kind="estimated", source=estimate.anchor, chip=chip))
    return found

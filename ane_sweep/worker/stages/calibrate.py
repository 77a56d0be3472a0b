"""calibrate: what a program does on real inputs, for recipes that must know before they compress.

params  ranges: true                                       how far each activation reaches
        sensitivity: {candidates, min_elements, skip}      what each weight costs the outputs at each width
inputs  program (as converted), reference
leaves  ranges.json, sensitivity.json: what was asked for; the second also has the curve of PSNR against size

The inputs are those of calibration.npz: text of the same kind as the one that is scored, but other text.
"""

import json
import time
from pathlib import Path
from typing import Any

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=40, many="calibrations", timeout_s=7200, base_gib=1.2, per_byte=1.5, guess_s=5, guess_per_gb=30,
    artifact=True, ignores=("ane_sweep.coreml_anywhere.plan",),
    warm=("torch", "transformers.modeling_utils", "coremltools"),
)  # fmt: skip


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """Raises errors.PackageError, errors.UnsupportedOp as the reference runtime does."""
    from ane_sweep.mil import package
    from ane_sweep.worker.feeds.arrays import Inputs

    began = time.perf_counter()
    feeds = Inputs(inputs["reference"], "calibration.npz")
    samples = list(feeds)
    (program,) = package.program_paths(inputs["program"])
    result = StageResult()
    if params.get("ranges"):
        from ane_sweep.worker.compress import ranges

        _write(out / "ranges.json", ranges.measure(program, samples))
    if wanted := params.get("sensitivity"):
        from ane_sweep.worker.compress import sensitivity

        count = sensitivity.INPUTS
        found = sensitivity.measure(program, samples[:count], feeds.valid[:count], wanted)
        _write(out / "sensitivity.json", found)
        result.facts["curve"] = [{k: v for k, v in point.items() if k != "bits"} for point in found["curve"]]
    result.metrics.append(Metric("calibrate_s", time.perf_counter() - began, "s"))
    return result


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True), encoding="utf-8")

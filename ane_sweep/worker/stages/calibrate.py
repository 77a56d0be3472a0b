"""calibrate: measures a program on real inputs, for recipes that need figures before they compress.

params  ranges: true                                       measure the range of each activation
        sensitivity: {candidates, min_elements, skip}      measure the outputs' error for each weight at each width
inputs  program (as converted), reference
leaves  ranges.json and sensitivity.json, as params request; the second also has the curve of PSNR against size

The inputs are those of calibration.npz: text of the same kind as the scored text, but other text.
"""

import json
import time
from pathlib import Path

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.worker import params, programs
from ane_sweep.worker.feeds.arrays import Inputs
from ane_sweep.worker.params import SensitivityParams
from ane_sweep.worker.programs import Calibrator
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=40, many="calibrations", timeout_s=7200, base_gib=0.45, per_byte=1.2, base_s=3, per_gb_s=25,
    artifact=True, parts=("calibrate",), holds="kept weights",
    warm=("torch", "transformers.modeling_utils", "coremltools"),
)  # fmt: skip


class Params(params.ProgramParams, frozen=True):
    """Parameters of this stage; see the module's docstring."""

    ranges: bool = False
    sensitivity: SensitivityParams | None = None


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Measure ranges and sensitivity. Raises the reference runtime's errors.PackageError and errors.UnsupportedOp."""
    settings = Params.read(params)
    began = time.perf_counter()
    feeds = Inputs(inputs["reference"], "calibration.npz")
    samples = list(feeds)
    calibrator: Calibrator = programs.part(settings.program, "calibrate")
    result = StageResult()
    if settings.ranges:
        _write(out / "ranges.json", calibrator.measure_ranges(inputs["program"], samples))
    if settings.sensitivity:
        measured = calibrator.measure_sensitivity(inputs["program"], samples, feeds.valid, settings.sensitivity)
        _write(out / "sensitivity.json", measured)
        result.facts["curve"] = [{k: v for k, v in point.items() if k != "bits"} for point in measured["curve"]]
    result.metrics.append(Metric("calibrate_s", time.perf_counter() - began, "s"))
    return result


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True), encoding="utf-8")

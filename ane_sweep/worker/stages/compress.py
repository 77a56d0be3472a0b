"""compress: a program's weights by a recipe, through coremltools.optimize.

params  recipe: ane_sweep/bridge/recipes.py, in full
inputs  program; calibration (stage calibrate) for mixed bits and quantized activations
leaves  model.mlpackage, and compress.json: what was done with each weight; the same recipe gives the same bytes
"""

import json
import shutil
import time
from pathlib import Path
from typing import Any

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.worker.conversion import packages
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=50, many="compressions", timeout_s=7200, base_gib=0.8, per_byte=2.0, guess_s=5, guess_per_gb=40,
    leaves="program", compressed=True, artifact=True,
    warm=("torch", "transformers.modeling_utils", "coremltools"),
)  # fmt: skip


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """A recipe that finds nothing to compress leaves the program as it is, which is a doubt about the cell. Raises StageError
    when the program's OS cannot hold the recipe."""
    from ane_sweep.mil import package
    from ane_sweep.worker.compress import allot, passes

    began = time.perf_counter()
    recipe = params["recipe"]
    (source,) = package.program_paths(inputs["program"])
    measured = inputs.get("calibration")
    bits = allot.choose_bits(measured, recipe) if recipe["kind"] == "mixed" else None
    target = out / "model.mlpackage"
    try:
        with passes.silence_warnings():
            model = passes.load(source)
            if recipe["activations"]:
                model = passes.quantize_activations(model, _read_ranges(measured))
            model, done = passes.apply(model, recipe, bits)
            if done.resolved.settings or recipe["activations"]:
                model.save(str(target))
            else:  # coremltools would write the same computation with other ops
                shutil.copytree(source, target)
    except ValueError as error:  # coremltools' way to say that the opset lacks it
        raise StageError(f"coremltools refuses this recipe for this program: {error}") from error
    if not done.resolved.settings:
        reasons = ", ".join(sorted(set(done.resolved.left.values()))) or "it has no weights"
        done.resolved.doubts.append(
            f"the recipe compresses none of this program's weights ({reasons}), so the figures are those of the program without it; "
            "see precision.weights.skip and min_elements"
        )
    packages.make_deterministic(target)
    return _report(target, done, time.perf_counter() - began, out)


def _read_ranges(measured: Path | None) -> dict[str, dict[str, float]]:
    assert measured is not None, "tasks.py gives every recipe with activations a calibration"
    return json.loads((measured / "ranges.json").read_text(encoding="utf-8"))


def _report(package: Path, done: Any, seconds: float, out: Path) -> StageResult:
    resolved = done.resolved
    account = {"settings": resolved.settings, "adapted": resolved.adapted, "left": resolved.left}
    (out / "compress.json").write_text(json.dumps(account, indent=1, sort_keys=True), encoding="utf-8")
    return StageResult(
        metrics=[
            Metric("compress_s", seconds, "s"),
            Metric("package_bytes", packages.measure_bytes(package), "bytes"),
            Metric("bits_per_weight", packages.compute_bits_per_weight(package, done.numbers), "bit"),
        ],
        realised={"weights_compressed": len(resolved.settings), "weights_left": len(resolved.left)},
        facts={"adapted": len(resolved.adapted)},
        doubts=resolved.doubts,
    )

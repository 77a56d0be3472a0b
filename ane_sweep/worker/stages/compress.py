"""compress: compresses a program's weights by a recipe.

params  recipe: see ane_sweep/bridge/recipes.py
inputs  program; calibration (stage calibrate) for mixed bits and quantized activations
leaves  model.mlpackage (or of the kind's suffix), and compress.json with the setting of each weight; the same recipe gives
        the same bytes
"""

import json
import time
from pathlib import Path

from ane_sweep.bridge import recipes
from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.worker import params, programs
from ane_sweep.worker.programs import Compressor, Sizer
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=50, many="compressions", timeout_s=7200, base_gib=0.45, per_byte=3.0, base_s=3, per_gb_s=24,
    leaves="program", compressed=True, artifact=True, parts=("compress", "size"),
    warm=("torch", "transformers.modeling_utils", "coremltools"), holds="a weight",
)  # fmt: skip


class Params(params.ProgramParams, frozen=True):
    """Parameters of this stage; see the module's docstring."""

    recipe: recipes.Recipe


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Compress the program. Raises StageError if the program's OS version does not support the recipe.

    A recipe that finds nothing to compress leaves the program unchanged and adds a warning.
    """
    began = time.perf_counter()
    settings = Params.read(params)
    compressor: Compressor = programs.part(settings.program, "compress")
    sizer: Sizer = programs.part(settings.program, "size")
    target = out / programs.name_file(settings.program)
    done = compressor.compress(inputs["program"], settings.recipe, inputs.get("calibration"), target)
    doubts = [*done.doubts]
    if not done.settings:
        reasons = ", ".join(sorted(set(done.left.values()))) or "it has no weights"
        doubts.append(
            f"the recipe compresses none of this program's weights ({reasons}), so the figures are those of the program without it; "
            "see precision.weights.skip and min_elements"
        )
    seconds = time.perf_counter() - began
    account = {"settings": done.settings, "adapted": done.adapted, "left": done.left}
    (out / "compress.json").write_text(json.dumps(account, indent=1, sort_keys=True), encoding="utf-8")
    return StageResult(
        metrics=[
            Metric("compress_s", seconds, "s"),
            Metric("package_bytes", sizer.measure_bytes(target), "bytes"),
            Metric("bits_per_weight", sizer.compute_bits_per_weight(target, done.numbers), "bit"),
        ],
        realised={"weights_compressed": len(done.settings), "weights_left": len(done.left)},
        facts={"adapted": len(done.adapted)},
        doubts=doubts,
    )

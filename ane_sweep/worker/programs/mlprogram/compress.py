"""Compression of ML Programs by coremltools.optimize."""

import json
import shutil
from pathlib import Path

from ane_sweep.bridge import recipes
from ane_sweep.errors import StageError
from ane_sweep.mil import package
from ane_sweep.worker.compress import allot, passes
from ane_sweep.worker.programs import Compressed
from ane_sweep.worker.programs.mlprogram import size


def compress(program: Path, recipe: recipes.Recipe, calibration: Path | None, target: Path) -> Compressed:
    """Write a package with compressed weights; if the recipe matches no weights, an unchanged copy."""
    (source,) = package.program_paths(program)
    bits = allot.choose_bits(calibration, recipe) if recipe["kind"] == "mixed" else None
    try:
        with passes.silence_warnings():
            model = passes.load(source)
            if recipe["activations"]:
                assert calibration is not None, "tasks.py gives every recipe with activations a calibration"
                known = json.loads((calibration / "ranges.json").read_text(encoding="utf-8"))
                model = passes.quantize_activations(model, known)
            model, done = passes.apply(model, recipe, bits)
            if done.resolved.settings or recipe["activations"]:
                model.save(str(target))
            else:  # coremltools would write the same computation with other ops
                shutil.copytree(source, target)
    except ValueError as error:  # coremltools' way to say that the opset lacks it
        raise StageError(f"coremltools refuses this recipe for this program: {error}") from error
    size.make_deterministic(target)
    resolved = done.resolved
    return Compressed(resolved.settings, resolved.adapted, resolved.left, resolved.doubts, done.numbers)

"""Measurements of an ML Program on real inputs, for recipes that need them before compression."""

from contextlib import AbstractContextManager, suppress
from pathlib import Path

import numpy as np

from ane_sweep import coreml_anywhere
from ane_sweep.errors import Unavailable
from ane_sweep.mil import package
from ane_sweep.worker.compress import sensitivity
from ane_sweep.worker.params import SensitivityParams
from ane_sweep.worker.patches import replace_attributes

Ranges = dict[str, dict[str, float]]


def measure_ranges(program: Path, samples: list[dict[str, np.ndarray]]) -> Ranges:
    """Return {tensor: {"rmin", "rmax"}} over all samples, inputs included, by coremltools' own calibration.

    That needs `predict`: without Core ML the drop-in replacement provides it.
    """
    (path,) = package.program_paths(program)
    with suppress(Unavailable):  # a Mac: Core ML itself predicts
        coreml_anywhere.install()
    from coremltools.models import MLModel
    from coremltools.optimize.coreml.experimental import _post_training_quantization as official

    with _merge_ranges():
        found = official._get_activation_calibration_stats(MLModel(str(path)), samples)
    return {name: {end: float(value) for end, value in sorted(found[name].items())} for name in sorted(found)}


def _merge_ranges() -> AbstractContextManager[None]:
    """Let ranges grow from sample to sample inside this context.

    coremltools 9.0 overwrites a tensor's range before it compares with it, so that only the last sample would count.
    """
    from coremltools.optimize.coreml.experimental import _model_debugger, _post_training_quantization

    def grow(name: str, value: object, ranges: Ranges) -> None:
        values, known = np.asarray(value), ranges[name]
        known["rmin"] = min(known.get("rmin", np.inf), float(values.min()))
        known["rmax"] = max(known.get("rmax", -np.inf), float(values.max()))

    patches = [
        (
            _model_debugger.ModelDebugger,
            "record_intermediate_output",
            staticmethod(lambda value, name, to: grow(name, value, to)),
        ),
        (_post_training_quantization, "_update_tensor_range", grow),
    ]
    return replace_attributes(patches)


def measure_sensitivity(
    program: Path, samples: list[dict[str, np.ndarray]], valid: np.ndarray, wanted: SensitivityParams
) -> sensitivity.Sensitivity:
    """Return the outputs' error for each weight at each width, over the first few samples."""
    (path,) = package.program_paths(program)
    count = sensitivity.INPUTS
    return sensitivity.measure(path, samples[:count], valid[:count], wanted)

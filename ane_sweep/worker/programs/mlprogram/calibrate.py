"""Measurements of an ML Program on real inputs, for recipes that need them before compression."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep.mil import package
from ane_sweep.mil.graph import Op
from ane_sweep.reference.constants import resolve
from ane_sweep.reference.model import Model, as_array
from ane_sweep.reference.numerics import AS_DECLARED
from ane_sweep.worker.compress import sensitivity
from ane_sweep.worker.params import SensitivityParams
from ane_sweep.worker.patches import replace_attributes

Ranges = dict[str, dict[str, float]]


def measure_ranges(program: Path, samples: list[dict[str, np.ndarray]]) -> Ranges:
    """Return {tensor: {"rmin", "rmax"}} over all samples, inputs included, by coremltools' own calibration.

    The reference runtime predicts, on a Mac as well: the same task has the same result everywhere.
    """
    (path,) = package.program_paths(program)
    from coremltools.models import MLModel
    from coremltools.optimize.coreml.experimental import _model_debugger
    from coremltools.optimize.coreml.experimental import _post_training_quantization as official

    patches = ((_model_debugger.ModelDebugger, "step", _make_step(path)), (official, "_update_tensor_range", _grow))
    with replace_attributes(patches):
        found = official._get_activation_calibration_stats(MLModel(str(path), skip_model_load=True), samples)
    return {name: {end: float(value) for end, value in sorted(found[name].items())} for name in sorted(found)}


def _grow(name: str, value: object, ranges: Ranges) -> None:
    """Let the range of a tensor grow by a value.

    coremltools 9.0 overwrites a range before it compares with it, so that only the last sample would count.
    """
    values, known = np.asarray(value), ranges[name]
    values = values.astype(np.float32) if values.dtype == np.float16 else values
    known["rmin"] = min(known.get("rmin", np.inf), float(values.min()))
    known["rmax"] = max(known.get("rmax", -np.inf), float(values.max()))


def _make_step(path: Path) -> Callable[..., None]:
    """Return a replacement of ModelDebugger.step, which would load a model anew for each sample, with every value as an output."""
    known: dict[str, object] = {}
    model = Model(package.read(path), "", AS_DECLARED, False, known)

    def step(self: Any, inputs: Mapping[str, object], **given: Any) -> None:
        ranges, operations = given["activation_stats_dict"], self.block_info.operations
        names = {one for one in given["intermediate_output_names"] if self.get_output_feature_type(one, operations)}

        def note(_: Op, made: dict[str, object]) -> None:
            for name in names.intersection(made):
                _grow(name, made[name], ranges)

        model.trace(inputs, note)
        for name in names & known.keys():
            _grow(name, as_array(resolve(known[name])), ranges)

    return step


def measure_sensitivity(
    program: Path, samples: list[dict[str, np.ndarray]], valid: np.ndarray, wanted: SensitivityParams
) -> sensitivity.Sensitivity:
    """Return the outputs' error for each weight at each width, over the first few samples."""
    (path,) = package.program_paths(program)
    count = sensitivity.INPUTS
    return sensitivity.measure(path, samples[:count], valid[:count], wanted)

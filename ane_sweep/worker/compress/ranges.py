"""How far each activation reaches on real inputs: coremltools' own calibration, which needs `predict`, through the
drop-in where there is no Core ML."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep import coreml_anywhere
from ane_sweep.errors import Unavailable

Ranges = dict[str, dict[str, float]]


def measure(path: Path, samples: list[dict[str, Any]]) -> Ranges:
    """{tensor: {"rmin", "rmax"}} over all samples, inputs included."""
    with contextlib.suppress(Unavailable):  # a Mac: Core ML itself predicts
        coreml_anywhere.install()
    from coremltools.models import MLModel
    from coremltools.optimize.coreml.experimental import _post_training_quantization as official

    with _merge_ranges():
        found = official._get_activation_calibration_stats(MLModel(str(path)), samples)
    return {name: {end: float(value) for end, value in sorted(found[name].items())} for name in sorted(found)}


@contextlib.contextmanager
def _merge_ranges() -> Iterator[None]:
    """coremltools 9.0 overwrites a tensor's range before it compares with it: the last sample's would be all that
    counts. While this is open, ranges grow."""
    from coremltools.optimize.coreml.experimental import _model_debugger, _post_training_quantization

    def grow(ranges: Any, name: str, value: Any) -> None:
        values = np.asarray(value)
        known = ranges[name]
        known["rmin"] = min(known.get("rmin", np.inf), float(values.min()))
        known["rmax"] = max(known.get("rmax", -np.inf), float(values.max()))

    debugger, before = _model_debugger.ModelDebugger, _post_training_quantization._update_tensor_range
    recorded = debugger.__dict__["record_intermediate_output"]
    debugger.record_intermediate_output = staticmethod(lambda value, name, ranges: grow(ranges, name, value))
    _post_training_quantization._update_tensor_range = lambda name, value, ranges: grow(ranges, name, value)
    try:
        yield
    finally:
        debugger.record_intermediate_output = recorded
        _post_training_quantization._update_tensor_range = before

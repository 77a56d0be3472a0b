"""Conversion of inputs and outputs, as coremltools' native binding does it.

Inputs: arrays of float32, float64, int32 and int8 (the binding knows no other; coremltools makes float32 of float16 before),
numbers, text, dictionaries, pictures. Outputs: float16 comes as float32, rank 0 as shape (1,).
Source: coremlpython/CoreMLPythonArray.mm and CoreMLPythonUtils.mm of coremltools 9.0, as observed.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

ACCEPTED = ("float32", "float64", "int32", "int8")


def convert_inputs(data: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return inputs for the runtime, without names that the model lacks, as Core ML does. Raises RuntimeError."""
    wanted = set(names)
    return {name: _convert_input(name, value) for name, value in data.items() if name in wanted and value is not None}


def _convert_input(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, np.ndarray) and type(value).__module__.split(".")[0] == "torch":
        value = value.detach().cpu().numpy()  # coremltools 9.0 does not convert tensors for multifunction models
        if value.dtype == np.float16:
            value = value.astype(np.float32)
    if isinstance(value, np.ndarray) and value.dtype.name not in ACCEPTED:
        raise RuntimeError(
            f"input {name!r} is an array of {value.dtype}; Core ML's binding takes {', '.join(ACCEPTED)}: "
            f"convert it, for instance with .astype(np.{'int32' if value.dtype.kind in 'biu' else 'float32'})"
        )
    return value


def check_shape(name: str, shape: tuple[int, ...], feature: Any) -> None:
    """Raise RuntimeError in Core ML's words for a shape that a flexible input does not allow."""
    kind = feature.WhichOneof("ShapeFlexibility")
    if kind == "enumeratedShapes":
        allowed = {tuple(item.shape) for item in feature.enumeratedShapes.shapes} | {tuple(feature.shape)}
        if shape not in allowed:
            sizes = " x ".join(map(str, shape))
            raise RuntimeError(
                f"input {name!r}: MultiArray Shape ({sizes}) was not in enumerated set of allowed shapes"
            )
    elif kind == "shapeRange" and len(shape) == len(feature.shapeRange.sizeRanges):
        for axis, (size, limits) in enumerate(zip(shape, feature.shapeRange.sizeRanges)):
            low, high = limits.lowerBound, limits.upperBound
            if size < low or (size > high >= 0):
                raise RuntimeError(
                    f"input {name!r}: Size ({size}) of dimension ({axis}) is not in allowed range "
                    f"({low}..{high if high >= 0 else 'infinity'})"
                )


def convert_outputs(values: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs as the binding would."""
    return {name: _convert_output(value) for name, value in values.items()}


def _convert_output(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == np.float16:
        value = value.astype(np.float32)
    return value.reshape(1) if value.ndim == 0 else value

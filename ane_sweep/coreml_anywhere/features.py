"""Values in and out as coremltools' native binding takes and gives them.

In: arrays of float32, float64, int32 and int8 (the binding knows no other; coremltools makes float32 of float16 before),
numbers, text, dictionaries, pictures. Out: float16 comes as float32, rank 0 as shape (1,).
Source: coremlpython/CoreMLPythonArray.mm and CoreMLPythonUtils.mm of coremltools 9.0, as observed.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

ACCEPTED = ("float32", "float64", "int32", "int8")


def accept(data: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Inputs for the runtime. Names that the model lacks are left out, as Core ML does; raises RuntimeError."""
    wanted = set(names)
    return {name: _accepted(name, value) for name, value in data.items() if name in wanted and value is not None}


def _accepted(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, np.ndarray) and type(value).__module__.split(".")[0] == "torch":
        value = value.detach().cpu().numpy()  # multifunction models get tensors as they are: coremltools 9.0 skips them
        if value.dtype == np.float16:
            value = value.astype(np.float32)
    if isinstance(value, np.ndarray) and value.dtype.name not in ACCEPTED:
        raise RuntimeError(
            f"input {name!r} is an array of {value.dtype}; Core ML's binding takes {', '.join(ACCEPTED)}: "
            f"convert it, for instance with .astype(np.{'int32' if value.dtype.kind in 'biu' else 'float32'})"
        )
    return value


def check_shape(name: str, shape: tuple[int, ...], feature: Any) -> None:
    """Raise Core ML's own words for a shape that a flexible input (ArrayFeatureType message) does not allow."""
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


def give(values: dict[str, Any]) -> dict[str, Any]:
    """Outputs as the binding gives them."""
    return {name: _given(value) for name, value in values.items()}


def _given(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == np.float16:
        value = value.astype(np.float32)
    return value.reshape(1) if value.ndim == 0 else value

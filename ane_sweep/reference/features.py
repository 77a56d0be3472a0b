"""Core ML features at the border of the runtime: arrays, images and classes in and out, checked against the model's
description.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ane_sweep.errors import PackageError
from ane_sweep.mil.element_types import TensorType
from ane_sweep.mil.proto import FeatureTypes_pb2
from ane_sweep.reference import images, limits

_ARRAY = FeatureTypes_pb2.ArrayFeatureType
_DTYPES: dict[int, np.dtype] = {
    _ARRAY.FLOAT16: np.dtype(np.float16),
    _ARRAY.FLOAT32: np.dtype(np.float32),
    _ARRAY.DOUBLE: np.dtype(np.float64),
    _ARRAY.INT32: np.dtype(np.int32),
    _ARRAY.INT8: np.dtype(np.int8),
}
_SCALARS = {"int64Type": np.dtype(np.int64), "doubleType": np.dtype(np.float64), "stringType": np.dtype(object)}
_KINDS = {"multiArrayType": "array", "imageType": "image", "dictionaryType": "dictionary", "stateType": "array"}
_KINDS |= {"int64Type": "int64", "doubleType": "double", "stringType": "string"}
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Feature:
    """One input, output or state. `kind`: array, image, int64, double, string or dictionary.

    `shape` is the default one where the feature is flexible; then either `ranges` holds (lowest, highest) of every
    dimension, None standing for no limit, or `enumerated` all shapes allowed. `color` is an image's layout: "L",
    "RGB", "BGR" or "F" (half-precision grey). Images have the shape (1, channels, height, width).
    """

    name: str
    kind: str
    dtype: np.dtype
    shape: Shape
    ranges: tuple[tuple[int, int | None], ...] = ()
    enumerated: tuple[Shape, ...] = ()
    is_optional: bool = False
    default: float | None = None
    color: str | None = None

    def __str__(self) -> str:
        if self.kind == "image":
            return f"{self.color} image {self.shape[3]} x {self.shape[2]}"
        return f"{self.dtype} {list(self.shape)}"

    def misfit(self, shape: Shape) -> str | None:
        """Why a shape is not allowed, or None."""
        if self.enumerated:
            if shape in self.enumerated:
                return None
            given = " x ".join(map(str, shape))
            return f"MultiArray Shape ({given}) was not in enumerated set of allowed shapes"
        if self.ranges:
            if len(shape) != len(self.ranges):
                return f"has {len(shape)} dimensions, not {len(self.ranges)}"
            for axis, (size, (low, high)) in enumerate(zip(shape, self.ranges)):
                if size < low or (high is not None and size > high):
                    allowed = f"{low}..{'' if high is None else high}"
                    return f"Size ({size}) of dimension ({axis}) is not in allowed range ({allowed})"
            return None
        return None if shape == self.shape else f"has shape {list(shape)}, not {list(self.shape)}"


def describe(feature: Any, where: Path) -> Feature:
    """A Feature of a FeatureDescription message. Raises PackageError for kinds that no ML Program has, and for sizes that
    cannot be held.
    """
    made = _describe_known(feature, where)
    if any(size < 0 for size in made.shape) or math.prod(made.shape) * made.dtype.itemsize > limits.most_bytes():
        raise PackageError(f"{where}: {made.name!r} is described as {made}, which cannot be held; the file is damaged")
    return made


def _describe_known(feature: Any, where: Path) -> Feature:
    field = feature.type.WhichOneof("Type")
    if field not in _KINDS:
        raise PackageError(f"{where}: feature {feature.name!r} is a {field}, which ML Programs do not have")
    optional = feature.type.isOptional
    if field == "imageType":
        return images.describe_image(Feature, feature, optional)
    if field not in ("multiArrayType", "stateType"):
        kind, dtype = _KINDS[field], _SCALARS.get(field, np.dtype(object))
        return Feature(feature.name, kind, dtype, (), is_optional=optional)
    array = feature.type.multiArrayType if field == "multiArrayType" else feature.type.stateType.arrayType
    if array.dataType not in _DTYPES:
        raise PackageError(f"{where}: feature {feature.name!r} has element type {array.dataType}, which is not known")
    ranges, enumerated = _read_flexible_shapes(array)
    chosen = array.WhichOneof("defaultOptionalValue")
    default = getattr(array, chosen) if chosen else None
    shape = tuple(array.shape)
    return Feature(feature.name, "array", _DTYPES[array.dataType], shape, ranges, enumerated, optional, default)


def _read_flexible_shapes(array: Any) -> tuple[tuple, tuple]:
    kind = array.WhichOneof("ShapeFlexibility")
    if kind == "enumeratedShapes":
        return (), tuple(tuple(option.shape) for option in array.enumeratedShapes.shapes)
    if kind == "shapeRange":
        sizes = array.shapeRange.sizeRanges
        return tuple((size.lowerBound, None if size.upperBound < 0 else size.upperBound) for size in sizes), ()
    return (), ()


def accept_inputs(
    inputs: dict[str, Any],
    features: dict[str, Feature],
    where: Path,
    strict: bool = True,
    types: dict[str, TensorType | None] | None = None,
) -> dict[str, torch.Tensor]:
    """Inputs as tensors of the declared type. All that is wrong is told at once, with what the model takes.

    `types` are the types inside the program, where they are known: a scalar there is an array of one outside.
    """
    problems = [f"{name!r} is not an input" for name in inputs if name not in features]
    tensors: dict[str, torch.Tensor] = {}
    for name, feature in features.items():
        if name not in inputs and feature.default is None:
            problems.append(f"{name!r} is missing")
            continue
        value = inputs[name] if name in inputs else np.full(feature.shape, feature.default, feature.dtype)
        inner = (types or {}).get(name)
        found = images.accept_image(value, feature) if feature.kind == "image" else _to_array(value, feature, strict)
        if isinstance(found, str):
            problems.append(found if found.startswith("MultiArray") else f"{name!r} {found}")
            continue
        if inner is not None and not inner.shape:
            if found.size != 1:
                problems.append(f"{name!r} is {feature} outside and one number inside; the file is damaged")
                continue
            found = found.reshape(())
        # a copy in torch's own memory: aligned, whatever numpy gave
        tensors[name] = torch.from_numpy(np.ascontiguousarray(found).reshape(found.shape)).clone()
    if problems:
        takes = ", ".join(f"{name} ({want})" for name, want in features.items())
        raise PackageError(f"{where}: inputs do not fit: {'; '.join(sorted(problems))}. It takes {takes}")
    return tensors


def _to_array(value: Any, want: Feature, strict: bool) -> np.ndarray | str:
    """The array for a feature, or what is wrong with it."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        return f"cannot be an array: {error}"
    if array.ndim == 0 and want.shape == (1,):
        array = array.reshape(1)
    wrong = want.misfit(array.shape)
    if wrong is not None:
        return wrong
    if not may_cast(array.dtype, want.dtype, strict):
        return f"is {array.dtype}, which is not {want.dtype}"
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(want.dtype)


def may_cast(given: np.dtype, wanted: np.dtype, strict: bool) -> bool:
    """Within a kind, and from integers and booleans to floats; a fraction is only cut off where it was asked for."""
    if given.kind not in "biuf":
        return False
    return not strict or given.kind != "f" or wanted.kind == "f"


def to_output(value: Any, feature: Feature | None, declared: TensorType | None = None) -> Any:
    """An output as a value of its own: constants and inputs passed through are not lent out."""
    if not isinstance(value, torch.Tensor):
        return value
    if feature is not None and feature.kind == "image":
        return images.to_image(value, feature)
    array = value.cpu().numpy().copy()
    wanted = feature.dtype if feature is not None and feature.kind == "array" else None
    if wanted is None and declared is not None and declared.dtype in ("fp16", "fp32"):
        wanted = np.dtype(np.float16 if declared.dtype == "fp16" else np.float32)
    if wanted is not None and array.dtype != wanted:
        with np.errstate(over="ignore"):
            array = array.astype(wanted)
    return np.atleast_1d(array)

"""Convert values between a caller and a program, checked against the model's description: arrays, images, classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ane_sweep.errors import PackageError
from ane_sweep.mil.element_types import TensorType
from ane_sweep.mil.proto import FeatureTypes_pb2, Model_pb2
from ane_sweep.reference import limits

if TYPE_CHECKING:
    from PIL.Image import Image

_ARRAY = FeatureTypes_pb2.ArrayFeatureType
_IMAGE = FeatureTypes_pb2.ImageFeatureType
_COLORS = {_IMAGE.GRAYSCALE: "L", _IMAGE.RGB: "RGB", _IMAGE.BGR: "BGR", _IMAGE.GRAYSCALE_FLOAT16: "F"}
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

    `shape` is the default shape if the feature is flexible; then either `ranges` holds (lowest, highest) of every
    dimension (None: no limit), or `enumerated` holds all shapes allowed. `color` is an image's layout: "L", "RGB",
    "BGR" or "F" (half-precision grey). Images have the shape (1, channels, height, width).
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
        """Return the reason why a shape is not allowed, or None."""
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


def describe(feature: Model_pb2.FeatureDescription, where: Path) -> Feature:
    """Convert a FeatureDescription message to a Feature.

    Raises PackageError for kinds that no ML Program has, and for sizes that do not fit into memory.
    """
    made = _describe_known(feature, where)
    if any(size < 0 for size in made.shape) or math.prod(made.shape) * made.dtype.itemsize > limits.most_bytes():
        raise PackageError(f"{where}: {made.name!r} is described as {made}, which cannot be held; the file is damaged")
    return made


def _describe_known(feature: Model_pb2.FeatureDescription, where: Path) -> Feature:
    field = feature.type.WhichOneof("Type")
    if field not in _KINDS:
        raise PackageError(f"{where}: feature {feature.name!r} is a {field}, which ML Programs do not have")
    optional = feature.type.isOptional
    if field == "imageType":
        return _describe_image(feature, optional)
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


def _read_flexible_shapes(
    array: FeatureTypes_pb2.ArrayFeatureType,
) -> tuple[tuple[tuple[int, int | None], ...], tuple[Shape, ...]]:
    kind = array.WhichOneof("ShapeFlexibility")
    if kind == "enumeratedShapes":
        return (), tuple(tuple(option.shape) for option in array.enumeratedShapes.shapes)
    if kind == "shapeRange":
        sizes = array.shapeRange.sizeRanges
        return tuple((size.lowerBound, None if size.upperBound < 0 else size.upperBound) for size in sizes), ()
    return (), ()


def accept_inputs(
    inputs: Mapping[str, object],
    features: dict[str, Feature],
    where: Path,
    strict: bool = True,
    types: dict[str, TensorType | None] | None = None,
) -> dict[str, torch.Tensor]:
    """Return the inputs as tensors of the declared type. Raises one PackageError with every fault.

    `types` are the types inside the program, if known: a scalar inside is an array of one element outside.
    """
    problems = [f"{name!r} is not an input" for name in inputs if name not in features]
    tensors: dict[str, torch.Tensor] = {}
    for name, feature in features.items():
        if name not in inputs and feature.default is None:
            problems.append(f"{name!r} is missing")
            continue
        value = inputs[name] if name in inputs else np.full(feature.shape, feature.default, feature.dtype)
        inner = (types or {}).get(name)
        array = accept_image(value, feature) if feature.kind == "image" else _to_array(value, feature, strict)
        if isinstance(array, str):
            problems.append(array if array.startswith("MultiArray") else f"{name!r} {array}")
            continue
        if inner is not None and not inner.shape:
            if array.size != 1:
                problems.append(f"{name!r} is {feature} outside and one number inside; the file is damaged")
                continue
            array = array.reshape(())
        # a copy in torch's own memory: aligned, whatever numpy gave
        tensors[name] = torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape)).clone()
    if problems:
        takes = ", ".join(f"{name} ({want})" for name, want in features.items())
        raise PackageError(f"{where}: inputs do not fit: {'; '.join(sorted(problems))}. It takes {takes}")
    return tensors


def _to_array(value: object, want: Feature, strict: bool) -> np.ndarray | str:
    """Convert a value to the array for a feature, or return a sentence about its fault."""
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
    """Return True if a dtype may be cast: within a kind, and from integers and booleans to floats; floats become
    integers only if not `strict`.
    """
    if given.kind not in "biuf":
        return False
    return not strict or given.kind != "f" or wanted.kind == "f"


def to_output(value: object, feature: Feature | None, declared: TensorType | None = None) -> Any:
    """Return an output as a value that the caller owns; constants and inputs passed through are copied."""
    if not isinstance(value, torch.Tensor):
        return value
    if feature is not None and feature.kind == "image":
        return to_image(value, feature)
    array = value.cpu().numpy().copy()
    wanted = feature.dtype if feature is not None and feature.kind == "array" else None
    if wanted is None and declared is not None and declared.dtype in ("fp16", "fp32"):
        wanted = np.dtype(np.float16 if declared.dtype == "fp16" else np.float32)
    if wanted is not None and array.dtype != wanted:
        with np.errstate(over="ignore"):
            array = array.astype(wanted)
    return np.atleast_1d(array)


def _describe_image(feature: Model_pb2.FeatureDescription, optional: bool) -> Feature:
    """Return the Feature of an image's description."""
    image = feature.type.imageType
    color = _COLORS.get(image.colorSpace, "RGB")
    channels = 3 if color in ("RGB", "BGR") else 1
    shape = (1, channels, image.height, image.width)
    ranges: tuple[tuple[int, int | None], ...] = ()
    enumerated: tuple[Shape, ...] = ()
    kind = image.WhichOneof("SizeFlexibility")
    if kind == "enumeratedSizes":
        enumerated = tuple((1, channels, size.height, size.width) for size in image.enumeratedSizes.sizes)
    elif kind == "imageSizeRange":
        sides = (image.imageSizeRange.heightRange, image.imageSizeRange.widthRange)
        bounds = [(side.lowerBound, None if side.upperBound < 0 else side.upperBound) for side in sides]
        ranges = ((1, 1), (channels, channels), *bounds)
    dtype = np.dtype(np.float16 if color == "F" else np.float32)
    return Feature(feature.name, "image", dtype, shape, ranges, enumerated, optional, None, color)


def accept_image(value: object, feature: Feature) -> np.ndarray | str:
    """Return the (1, channels, height, width) array of an image, 0 to 255, or a sentence about its fault.

    Takes a PIL image, or an array of (H, W), (H, W, C) or already (1, C, H, W).
    """
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.ndim not in (2, 3, 4):
        return f"is no image (an array of {array.dtype} with {array.ndim} dimensions)"
    channels = feature.shape[1]
    if array.ndim == 2:
        array = array[None, None]
    elif array.ndim == 3:
        array = array[:, :, :channels] if array.shape[2] > channels else array
        array = array.transpose(2, 0, 1)[None]
    if array.shape[1] != channels:
        return f"has {array.shape[1]} channels, not the {channels} of a {feature.color} image"
    wrong = feature.misfit(array.shape)
    if wrong is not None:
        return wrong.replace("has shape", "is an image of shape")
    if feature.color == "BGR":
        array = array[:, ::-1]
    return array.astype(feature.dtype)


def to_image(tensor: torch.Tensor, feature: Feature) -> Image:
    """Convert a (1, channels, height, width) tensor to a PIL image.

    It is RGBA for colour, L for grey, F for half-precision grey. Raises PackageError without Pillow.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise PackageError(f"output {feature.name!r} is an image: pip install pillow") from error
    array = tensor.float().cpu().numpy()
    array = array[0] if array.ndim == 4 else array
    if feature.color == "F":
        return Image.fromarray(array[0].astype(np.float32), mode="F")
    levels = np.clip(np.round(np.nan_to_num(array)), 0, 255).astype(np.uint8)
    if feature.color == "L":
        return Image.fromarray(levels[0], mode="L")
    if feature.color == "BGR":
        levels = levels[::-1]
    alpha = np.full((1, *levels.shape[1:]), 255, np.uint8)
    return Image.fromarray(np.concatenate([levels, alpha]).transpose(1, 2, 0).copy(), mode="RGBA")

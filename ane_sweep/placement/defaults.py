"""Sizes at the default shape, for programs that take other shapes too.

Such a program does not declare the sizes that vary. At the default shape of its inputs, shapes.py computes them op by
op, including the small integers that programs compute from shapes. Sizes that depend on data stay unknown.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ane_sweep.mil.compiled import NO_DEFAULT
from ane_sweep.mil.proto import FeatureTypes_pb2, Model_pb2
from ane_sweep.placement import shapes
from ane_sweep.placement.sites import Site, Tensor

Feature = Model_pb2.FeatureDescription
Image = FeatureTypes_pb2.ImageFeatureType
_MOST_VALUES = 64  # elements of a value that is followed: shapes, and what is made of them


def of_input(feature: Feature, rank: int) -> tuple[int, ...] | None:
    """Return the default shape in an input's FeatureDescription, or None if it has none of that rank.

    A compiled model without FlexibleShapeInformation has none (mil/compiled.py).
    """
    if feature.shortDescription == NO_DEFAULT:
        return None
    array, image = feature.type.multiArrayType, _image(feature)
    found = tuple(array.shape or next((one.shape for one in array.enumeratedShapes.shapes), ()))
    if image is not None:
        found = (1, _channels(image), image.height, image.width)
    return found if len(found) == rank and all(size > 0 for size in found) else None


def enumerated(feature: Feature, rank: int) -> tuple[tuple[int, ...], ...]:
    """Return all enumerated shapes of an input that have the given rank."""
    found = [tuple(one.shape) for one in feature.type.multiArrayType.enumeratedShapes.shapes]
    if (image := _image(feature)) is not None:
        found = [(1, _channels(image), size.height, size.width) for size in image.enumeratedSizes.sizes]
    return tuple(shape for shape in found if len(shape) == rank and all(size > 0 for size in shape))


def bounds(feature: Feature, rank: int) -> tuple[tuple[int, int | None], ...]:
    """Return the lowest and highest size (None: no limit) of every axis of an input that takes a range."""
    if (image := _image(feature)) is not None:
        ranges = [image.imageSizeRange.heightRange, image.imageSizeRange.widthRange]
        pairs = [(1, 1), (_channels(image), _channels(image))]
    else:
        ranges, pairs = list(feature.type.multiArrayType.shapeRange.sizeRanges), []
    pairs += [(one.lowerBound, one.upperBound) for one in ranges]
    found = tuple((max(1, low), None if high < 0 else high) for low, high in pairs)
    return found if len(found) == rank else ()


def _image(feature: Feature) -> Image | None:
    return feature.type.imageType if feature.type.WhichOneof("Type") == "imageType" else None


def _channels(image: Image) -> int:
    return 1 if image.colorSpace in (Image.GRAYSCALE, Image.GRAYSCALE_FLOAT16) else 3


def flexibility(feature: Feature) -> str | None:
    """Return "enumerated" or "range" if an input takes several shapes, else None."""
    which = feature.type.multiArrayType.WhichOneof("ShapeFlexibility")
    if (image := _image(feature)) is not None:
        which = image.WhichOneof("SizeFlexibility")
    return None if which is None else "enumerated" if which.startswith("enumerated") else "range"


def fill_in_sizes(site: Site) -> list[Tensor]:
    """Return the outputs of an op, with unknown sizes and small integer values filled in as far as they follow from its inputs."""
    if any(not tensor.is_static for tensor in site.data):
        return site.outputs
    try:
        found = shapes.infer(site)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return site.outputs  # the sizes depend on data, or the op is damaged, which the readers of the program report
    if len(found) != len(site.outputs):
        return site.outputs
    values = [_value(site, found[0])] + [None] * (len(found) - 1) if found else []
    return [_fill_in(*one) for one in zip(site.outputs, found, values)]


def _fill_in(declared: Tensor, found: Tensor, value: object) -> Tensor:
    pairs = zip(declared.shape, found.shape)
    if declared.rank != found.rank or any(size is None or size < 0 or said not in (None, size) for said, size in pairs):
        return declared
    return Tensor(declared.dtype, found.shape, const=value is not None, value=value, is_default=not declared.is_static)


def _value(site: Site, found: Tensor) -> object:
    """Compute an op on small integers. Return a number or a flat tuple, or None if an input is unknown."""
    if site.type == "shape":
        return found.value
    rule = _VALUES.get(site.type)
    try:
        given = {name: [_array(tensor) for tensor in tensors] for name, tensors in site.inputs.items() if tensors}
        if rule is None or any(array is None for arrays in given.values() for array in arrays):
            return None
        made = rule({name: every if name == "values" else every[0] for name, every in given.items()})
        made = np.reshape(made, [size or 0 for size in found.shape])
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None
    return made.item() if not made.ndim else tuple(made.ravel().tolist())


def _array(tensor: Tensor) -> Any:
    """Return a small known value as an array in its shape (text stays text), or None if it is large or unknown."""
    if not tensor.is_static or tensor.elements > _MOST_VALUES or tensor.value is None:
        return None
    if isinstance(tensor.value, str):
        return tensor.value
    return np.array(tensor.value).reshape([size or 0 for size in tensor.shape])


def _sliced(a: dict[str, Any]) -> Any:
    rank = len(a["begin"])
    rest = [a.get(f"{name}_mask", np.zeros(rank, bool)) for name in ("begin", "end", "squeeze")]
    return a["x"][shapes.spans(a["begin"], a["end"], a.get("stride", np.ones(rank, int)), *rest)]


_TWO = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floor_div": np.floor_divide, "real_div": np.true_divide,
    "mod": np.mod, "maximum": np.maximum, "minimum": np.minimum, "equal": np.equal, "not_equal": np.not_equal,
    "greater": np.greater, "greater_equal": np.greater_equal, "less": np.less, "less_equal": np.less_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or,
}  # fmt: skip
_VALUES: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{name: (lambda a, two=two: two(a["x"], a["y"])) for name, two in _TWO.items()},  # type: ignore[misc]
    "gather": lambda a: np.take(a["x"], a["indices"].astype(int), int(a.get("axis", 0))),
    "concat": lambda a: np.concatenate([np.atleast_1d(one) for one in a["values"]], int(a["axis"])),
    "stack": lambda a: np.stack(a["values"], int(a["axis"])),
    "select": lambda a: np.where(a["cond"], a["a"], a["b"]),
    "cast": lambda a: a["x"].astype(int if "int" in a["dtype"] else float),
    "floor": lambda a: np.floor(a["x"]),
    "ceil": lambda a: np.ceil(a["x"]),
    "reduce_prod": lambda a: a["x"].prod(),
    "slice_by_index": _sliced,
    **dict.fromkeys(("squeeze", "expand_dims", "reshape", "identity"), lambda a: a["x"]),
}

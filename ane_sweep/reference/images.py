"""Image features: PIL images or arrays outside, (1, channels, height, width) floats from 0 to 255 inside."""

from typing import Any

import numpy as np
import torch

from ane_sweep.errors import PackageError
from ane_sweep.mil.proto import FeatureTypes_pb2

_IMAGE = FeatureTypes_pb2.ImageFeatureType
_COLORS = {_IMAGE.GRAYSCALE: "L", _IMAGE.RGB: "RGB", _IMAGE.BGR: "BGR", _IMAGE.GRAYSCALE_FLOAT16: "F"}


def describe_image(make: Any, feature: Any, optional: bool) -> Any:
    """A features.Feature (`make`) of an image feature's description."""
    image = feature.type.imageType
    color = _COLORS.get(image.colorSpace, "RGB")
    channels = 3 if color in ("RGB", "BGR") else 1
    shape = (1, channels, image.height, image.width)
    ranges: tuple = ()
    enumerated: tuple = ()
    kind = image.WhichOneof("SizeFlexibility")
    if kind == "enumeratedSizes":
        enumerated = tuple((1, channels, size.height, size.width) for size in image.enumeratedSizes.sizes)
    elif kind == "imageSizeRange":
        sides = (image.imageSizeRange.heightRange, image.imageSizeRange.widthRange)
        limits = [(side.lowerBound, None if side.upperBound < 0 else side.upperBound) for side in sides]
        ranges = ((1, 1), (channels, channels), *limits)
    dtype = np.dtype(np.float16 if color == "F" else np.float32)
    return make(feature.name, "image", dtype, shape, ranges, enumerated, optional, None, color)


def accept_image(value: Any, feature: Any) -> np.ndarray | str:
    """The (1, channels, height, width) array of an image, or what is wrong with it.

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


def to_image(tensor: torch.Tensor, feature: Any) -> Any:
    """A PIL image of a (1, channels, height, width) tensor: RGBA for colour, L for grey, F for half-precision grey."""
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

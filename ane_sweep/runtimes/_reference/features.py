"""Core ML features at the border of the runtime: numpy arrays in and out, checked against the model's description."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ane_sweep.errors import PackageError
from ane_sweep.mil.proto import FeatureTypes_pb2

_ARRAY = FeatureTypes_pb2.ArrayFeatureType
_DTYPES: dict[int, np.dtype] = {
    _ARRAY.FLOAT16: np.dtype(np.float16),
    _ARRAY.FLOAT32: np.dtype(np.float32),
    _ARRAY.DOUBLE: np.dtype(np.float64),
    _ARRAY.INT32: np.dtype(np.int32),
}


@dataclass(frozen=True)
class Expected:
    """An input array that the model takes."""

    dtype: np.dtype
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def expected(features: dict[str, Any], where: Path) -> dict[str, Expected]:
    """What each input must be. Raises PackageError for kinds of features that are not executed here."""
    result = {}
    for name, feature in features.items():
        array = feature.type.multiArrayType
        if feature.type.WhichOneof("Type") != "multiArrayType" or array.dataType not in _DTYPES:
            kind = feature.type.WhichOneof("Type")
            raise PackageError(f"{where}: input {name!r} is a {kind}; the reference runtime takes arrays")
        if array.WhichOneof("ShapeFlexibility"):
            raise PackageError(f"{where}: input {name!r} has a flexible shape; the reference runtime takes fixed ones")
        result[name] = Expected(_DTYPES[array.dataType], tuple(array.shape))
    return result


def accept(inputs: dict[str, Any], expected: dict[str, Expected], where: Path) -> dict[str, torch.Tensor]:
    """Inputs as tensors of the declared type. All that is wrong is told at once, with what the model takes."""
    problems = [f"{name!r} is missing" for name in expected if name not in inputs]
    problems += [f"{name!r} is not an input" for name in inputs if name not in expected]
    arrays = {}
    for name in expected.keys() & inputs.keys():
        array, want = np.asarray(inputs[name]), expected[name]
        if array.shape != want.shape:
            problems.append(f"{name!r} has shape {list(array.shape)}, not {list(want.shape)}")
        elif not _may_cast(array.dtype, want.dtype):
            problems.append(f"{name!r} is {array.dtype}, which is not {want.dtype}")
        else:
            arrays[name] = array.astype(want.dtype)
    if problems:
        takes = ", ".join(f"{name} ({want})" for name, want in expected.items())
        raise PackageError(f"{where}: inputs do not fit: {'; '.join(sorted(problems))}. It takes {takes}")
    # a copy in torch's own memory: aligned, whatever numpy gave
    return {name: torch.from_numpy(array).clone() for name, array in arrays.items()}


def _may_cast(given: np.dtype, wanted: np.dtype) -> bool:
    """Within a kind, and from integers and booleans to floats; a fraction is never cut off silently."""
    if given.kind not in "biuf":
        return False
    return given.kind != "f" or wanted.kind == "f"


def give(tensor: torch.Tensor) -> np.ndarray:
    """An output as an array of its own: constants and inputs passed through are not lent out."""
    return tensor.numpy().copy()

"""Messages of types and constants for an ML Program's new ops."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ane_sweep.errors import PackageError
from ane_sweep.mil.element_types import DTYPE_NUMBERS, NUMPY, string_value
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import MIL_pb2
from ane_sweep.mil.weights import DTYPES, BlobWriter

Shape = Sequence[int | None]
_FIELDS = {"fp32": "floats", "int32": "ints", "bool": "bools"}  # other types are kept as raw bytes
_CODES = {name: code for code, (name, _) in DTYPES.items()}
IMMEDIATE = 9  # coremltools keeps numbers up to so many in the program, and longer constants in the weight file
NAMES = {dtype: name for name, dtype in NUMPY.items()}


class Text(str):
    """A text as the value of a parameter; other texts are names of values."""


def make_type(dtype: str, shape: Shape) -> MIL_pb2.ValueType:
    """Return the ValueType message of a tensor; None is an unknown size."""
    made = MIL_pb2.ValueType()
    made.tensorType.dataType = DTYPE_NUMBERS[dtype]
    made.tensorType.rank = len(shape)
    for size in shape:
        dimension = made.tensorType.dimensions.add()
        if size is None:
            dimension.unknown.SetInParent()
        else:
            dimension.constant.size = size
    return made


def to_array(value: object, float_dtype: str) -> np.ndarray:
    """Return numbers or an array as the array of a MIL constant: ints as int32, Python's floats as `float_dtype`."""
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    array = np.asarray(value)
    if array.dtype == np.bool_:
        return array
    return array.astype(np.int32 if array.dtype.kind in "iu" else NUMPY[float_dtype])


def make_value(array: np.ndarray | Text, package: Package, scratch: Path) -> MIL_pb2.Value:
    """Return a constant's Value message: in the program if it is short, else in a new file of `scratch`."""
    if isinstance(array, Text):
        return string_value(array)
    if array.dtype not in NAMES:
        raise PackageError(f"{package.path}: a new constant of type {array.dtype} cannot be written")
    dtype = NAMES[array.dtype]
    if array.size <= IMMEDIATE or dtype not in _CODES or dtype == "int32":
        return make_immediate(array)
    value = MIL_pb2.Value()
    value.type.CopyFrom(make_type(dtype, array.shape))
    value.blobFileValue.fileName, value.blobFileValue.offset = _write_blob(array, package, scratch)
    return value


def make_immediate(array: np.ndarray) -> MIL_pb2.Value:
    """Return a constant's Value message whose numbers are in the program."""
    value, dtype = MIL_pb2.Value(), NAMES[array.dtype]
    value.type.CopyFrom(make_type(dtype, array.shape))
    if dtype in _FIELDS:
        field = getattr(value.immediateValue.tensor, _FIELDS[dtype])
        field.SetInParent()
        field.values.extend(array.reshape(-1).tolist())
    else:
        value.immediateValue.tensor.bytes.values = np.ascontiguousarray(array).tobytes()
    return value


def _write_blob(array: np.ndarray, package: Package, scratch: Path) -> tuple[str, int]:
    """Write one new weight to a file of its own, so that no more than one is held. Return its name and offset."""
    handle, made = tempfile.mkstemp(".bin", dir=scratch)
    os.close(handle)
    path = Path(made)
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    with BlobWriter(path) as writer:
        offset = writer.reserve(_CODES[NAMES[array.dtype]], content.nbytes, 0)
        writer.fill(offset, [content])
    name = f"@model_path/weights/new/{path.name}"
    package.add_blobs(name, path)
    return name, offset


def view_value(value: MIL_pb2.Value, shape: Shape) -> MIL_pb2.Value:
    """Return the same constant under another shape of as many elements: no number is read or copied."""
    made = MIL_pb2.Value()
    made.CopyFrom(value)
    made.type.CopyFrom(make_type("fp16", shape))
    made.type.tensorType.dataType = value.type.tensorType.dataType
    return made

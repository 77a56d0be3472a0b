"""Element types of ML Programs, and the types of tensors."""

import math
from dataclasses import dataclass

import numpy as np

from ane_sweep.mil.proto import MIL_pb2

_DATA_TYPE = MIL_pb2.DataType
_NAMES = {
    "BOOL": "bool",
    "STRING": "string",
    "FLOAT16": "fp16",
    "FLOAT32": "fp32",
    "FLOAT64": "fp64",
    "BFLOAT16": "bf16",
    "FLOAT8E4M3FN": "fp8e4m3fn",
    "FLOAT8E5M2": "fp8e5m2",
}
# MIL's own names for element types, by the number in the protobuf
DTYPE_NAMES = {number: _NAMES.get(name, name.lower()) for name, number in _DATA_TYPE.items()}
DTYPE_NUMBERS = {name: number for number, name in DTYPE_NAMES.items()}
NUMPY = {
    "bool": np.dtype(np.bool_),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "uint64": np.dtype(np.uint64),
}
MOST_AXES = 64  # a tensor of more is damage, and its sizes are not looked at


@dataclass(frozen=True, slots=True)
class TensorType:
    """An element type by its MIL name, and a shape; None stands for a size that is only known while the program runs."""

    dtype: str
    shape: tuple[int | None, ...]

    @property
    def is_static(self) -> bool:
        return None not in self.shape

    @property
    def count(self) -> int:
        """Return the elements of a tensor of this type; unknown sizes count as 1."""
        return math.prod(length if length is not None else 1 for length in self.shape)

    @property
    def byte_count(self) -> int:
        """Return the bytes of a tensor of this type, at whole bytes an element; unknown sizes count as 1."""
        return math.prod(
            (length or 1 for length in self.shape), start=NUMPY[self.dtype].itemsize if self.dtype in NUMPY else 1
        )


@dataclass(frozen=True, slots=True)
class FlexibleShape:
    """The sizes of one value of a program that takes several shapes.

    `default` is its shape at the default input. Either all of its `shapes` are listed (enumerated), or the lowest and the
    highest size of every axis (`ranges`; None: no limit); neither if it has one shape after all.
    """

    default: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    ranges: tuple[tuple[int, int | None], ...] = ()


def tensor_type(value_type: MIL_pb2.ValueType) -> TensorType | None:
    """Return the TensorType of a ValueType message, or None if it is no tensor."""
    if value_type.WhichOneof("type") != "tensorType":
        return None
    tensor = value_type.tensorType
    if len(tensor.dimensions) > MOST_AXES:  # their product alone would take hours
        return TensorType(DTYPE_NAMES.get(tensor.dataType, f"type {tensor.dataType}"), (None,) * MOST_AXES)
    shape = tuple(
        size.constant.size if size.WhichOneof("dimension") == "constant" else None for size in tensor.dimensions
    )
    return TensorType(DTYPE_NAMES.get(tensor.dataType, f"type {tensor.dataType}"), shape)


PACKED_BITS = {"uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint6": 6, "int4": 4}

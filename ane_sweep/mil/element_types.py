"""Element types of ML Programs, and the types of tensors."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ane_sweep.mil.proto import FeatureTypes_pb2, MIL_pb2

# MIL's own names for element types (fp16, bf16, int8), by the number in the protobuf
DTYPE_NAMES = {
    number: name.lower().replace("bfloat", "bf").replace("float", "fp") for name, number in MIL_pb2.DataType.items()
}
DTYPE_NUMBERS = {name: number for number, name in DTYPE_NAMES.items()}
NUMPY = {"bool": np.dtype(np.bool_)}
NUMPY |= {f"fp{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)}
NUMPY |= {name: np.dtype(name) for bits in (8, 16, 32, 64) for name in (f"int{bits}", f"uint{bits}")}
_ARRAY = FeatureTypes_pb2.ArrayFeatureType
FEATURES = {  # of Core ML's arrays; coremltools before 9.0, which may be the converter's, has no int8
    mine: getattr(_ARRAY, theirs)
    for mine, theirs in (("fp16", "FLOAT16"), ("fp32", "FLOAT32"), ("int32", "INT32"), ("int8", "INT8"))
    if hasattr(_ARRAY, theirs)
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
        """Return the number of elements of a tensor of this type; unknown sizes count as 1."""
        return math.prod(1 if length is None else length for length in self.shape)

    @property
    def byte_count(self) -> int:
        """Return the bytes of a tensor of this type, with whole bytes per element; unknown sizes count as 1."""
        itemsize = NUMPY[self.dtype].itemsize if self.dtype in NUMPY else 1
        return math.prod((length or 1 for length in self.shape), start=itemsize)


@dataclass(frozen=True, slots=True)
class FlexibleShape:
    """The sizes of one value of a program with flexible inputs.

    `default` is its shape at the default input. `shapes` lists all of its shapes (enumerated), or `ranges` holds the
    lowest and highest size of every axis (None: no limit); both are empty if its shape never changes.
    """

    default: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    ranges: tuple[tuple[int, int | None], ...] = ()


def tensor_type(value_type: MIL_pb2.ValueType) -> TensorType | None:
    """Return the TensorType of a ValueType message, or None if it is no tensor."""
    return _read_type(value_type.SerializeToString())


@lru_cache(maxsize=4096)  # a program has few types, and asks for each of them thousands of times
def _read_type(message: bytes) -> TensorType | None:
    value_type = MIL_pb2.ValueType.FromString(message)
    if value_type.WhichOneof("type") != "tensorType":
        return None
    tensor = value_type.tensorType
    dtype, sizes = DTYPE_NAMES.get(tensor.dataType, f"type {tensor.dataType}"), tensor.dimensions
    if len(sizes) > MOST_AXES:  # their product alone would take hours
        return TensorType(dtype, (None,) * MOST_AXES)
    shape = (size.constant.size if size.WhichOneof("dimension") == "constant" else None for size in sizes)
    return TensorType(dtype, tuple(shape))


def string_value(text: str) -> MIL_pb2.Value:
    """Return a text as a Value message."""
    value = MIL_pb2.Value()
    value.type.tensorType.dataType = MIL_pb2.STRING
    value.immediateValue.tensor.strings.values.append(text)
    return value


PACKED_BITS = {"uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint6": 6, "int4": 4}

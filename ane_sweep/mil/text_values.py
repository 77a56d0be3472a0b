"""Convert values in MIL text to messages: elements of tensors, and features for a model that has only its text."""

import math
import re

import numpy as np

from ane_sweep.mil import element_types
from ane_sweep.mil.element_types import DTYPE_NAMES, DTYPE_NUMBERS, FEATURES, NUMPY, PACKED_BITS
from ane_sweep.mil.proto import FeatureTypes_pb2, MIL_pb2, Model_pb2

_FIELDS = {
    "fp32": "floats", "fp64": "doubles", "int32": "ints", "int64": "longInts", "bool": "bools", "string": "strings",
}  # fmt: skip
_ARRAY = FeatureTypes_pb2.ArrayFeatureType
_ESCAPED = {"n": "\n", "t": "\t"}


def find_dtype_number(dtype: str) -> int:
    if dtype not in DTYPE_NUMBERS:
        raise ValueError(f"the type {dtype} is not known")
    return DTYPE_NUMBERS[dtype]


def fill(kind: MIL_pb2.ValueType, tensor: MIL_pb2.TensorValue, words: list[str]) -> None:
    """Put elements into a TensorValue message, in the field that coremltools uses for their type."""
    dtype = DTYPE_NAMES[kind.tensorType.dataType]
    if dtype in PACKED_BITS:
        tensor.bytes.values = _pack([int(word) for word in words], kind, PACKED_BITS[dtype])
    elif dtype in _FIELDS:
        field = getattr(tensor, _FIELDS[dtype])
        field.SetInParent()  # also where there are no words
        field.values.extend(_parse_value(word, dtype) for word in words)
    elif dtype in NUMPY:
        with np.errstate(over="ignore"):
            tensor.bytes.values = np.array([_parse_value(word, dtype) for word in words], NUMPY[dtype]).tobytes()
    else:
        raise ValueError(f"numbers of type {dtype} are not read here")


def _parse_value(word: str, dtype: str) -> str | bool | float:
    if dtype == "string":
        if not word.startswith('"'):
            raise ValueError(f"expected a string, found {word}")
        return re.sub(r"\\(.)", lambda match: _ESCAPED.get(match[1], match[1]), word[1:-1])
    if dtype == "bool":
        if word not in ("true", "false", "1", "0"):
            raise ValueError(f"expected true or false, found {word}")
        return word in ("true", "1")
    if dtype in ("fp16", "fp32", "fp64"):
        return float.fromhex(word) if "x" in word.lower() else float(word)
    return int(word, 0)


def _pack(numbers: list[int], kind: MIL_pb2.ValueType, bits: int) -> bytes:
    """Return elements of less than a byte as bytes, lowest bits first; already packed bytes are returned unchanged."""
    count = math.prod(size.constant.size for size in kind.tensorType.dimensions)
    if len(numbers) != count and len(numbers) == -(-count * bits // 8):
        return bytes(numbers)
    rows = (np.array(numbers, np.int64)[:, None] >> np.arange(bits)) & 1
    return np.packbits(rows.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def describe(spec: Model_pb2.Model) -> None:
    """Add features for the inputs and outputs of the functions."""
    functions = spec.mlProgram.functions
    spec.description.defaultFunctionName = "main" if "main" in functions or not functions else min(functions)
    several = len(functions) > 1
    for name in sorted(functions):
        into: Model_pb2.FunctionDescription | Model_pb2.ModelDescription = spec.description
        into = spec.description.functions.add(name=name) if several else into
        block = functions[name].block_specializations[functions[name].opset]
        types = {value.name: value.type for value in functions[name].inputs}
        types |= {value.name: value.type for proto in block.operations for value in proto.outputs}
        for value in functions[name].inputs:
            is_state = value.type.WhichOneof("type") == "stateType"
            _describe_feature((into.state if is_state else into.input).add(name=value.name), value.type)
        for output in block.outputs:
            _describe_feature(into.output.add(name=output), types[output])
        for proto in block.operations:
            if proto.type == "classify" and {value.name for value in proto.outputs} <= set(block.outputs):
                into.predictedFeatureName, into.predictedProbabilitiesName = (value.name for value in proto.outputs)
                label = next(one for one in into.output if one.name == into.predictedFeatureName)
                if label.type.WhichOneof("Type") != "stringType":  # described as an array: a whole number
                    label.type.int64Type.SetInParent()
    if not several:
        spec.description.ClearField("defaultFunctionName")


def _describe_feature(feature: Model_pb2.FeatureDescription, kind: MIL_pb2.ValueType) -> None:
    array = feature.type.multiArrayType
    if kind.WhichOneof("type") == "stateType":
        array, kind = feature.type.stateType.arrayType, kind.stateType.wrappedType
    found = element_types.tensor_type(kind)
    if kind.WhichOneof("type") == "dictionaryType":
        is_text = DTYPE_NAMES[kind.dictionaryType.keyType.tensorType.dataType] == "string"
        into = feature.type.dictionaryType
        (into.stringKeyType if is_text else into.int64KeyType).SetInParent()
        return
    if found is not None and found.dtype == "string":
        feature.type.stringType.SetInParent()
        return
    if found is None:
        raise ValueError(f"{feature.name} is no tensor; inputs and outputs must be tensors")
    other = _ARRAY.FLOAT32 if found.dtype.startswith("fp") else _ARRAY.INT32
    array.dataType = _ARRAY.DOUBLE if found.dtype == "fp64" else FEATURES.get(found.dtype, other)
    array.shape.extend([size or 1 for size in found.shape] or [1])
    if not found.is_static:
        for size in found.shape:
            array.shapeRange.sizeRanges.add(lowerBound=size or 1, upperBound=-1 if size is None else size)

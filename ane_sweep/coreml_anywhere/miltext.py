"""A writer of programs as MIL text, in the form of Core ML's `model.mil`.

Two dialects: up to iOS 17 a scalar is `tensor<string, []>("x")`, from specification version 9 (iOS 18) on
`string("x")`. Floats are written in hexadecimal, which is exact. Weights stay references into weight.bin. The text is
for reading and for tools; functions, ops and parameters are sorted by name if the protobuf has no order.
"""

from collections.abc import Iterable

import numpy as np

from ane_sweep.mil.element_types import DTYPE_NAMES, NUMPY
from ane_sweep.mil.proto import MIL_pb2, Model_pb2

IOS18_SPECIFICATION = 9
_INDENT = "    "
_OPSETS = {"CoreML5": "ios15", "CoreML6": "ios16", "CoreML7": "ios17", "CoreML8": "ios18", "CoreML9": "ios26"}


def program(spec: Model_pb2.Model) -> str:
    """Return the text of all functions of a model that holds an ML Program."""
    writer = _Writer(spec.specificationVersion >= IOS18_SPECIFICATION)
    text = ["program(1.3)" if writer.has_scalars else "program(1.0)"]
    if info := spec.mlProgram.attributes:
        text.append(f"[{', '.join(f'{name} = {writer.value(info[name])}' for name in sorted(info))}]")
    text.append("{")
    for name in sorted(spec.mlProgram.functions):
        text.extend(writer.function(name, spec.mlProgram.functions[name]))
    text.append("}")
    return "\n".join(text) + "\n"


class _Writer:
    """A writer of one dialect; `has_scalars` is the newer one, with own types for rank 0."""

    def __init__(self, has_scalars: bool):
        self.has_scalars = has_scalars

    def function(self, name: str, function: MIL_pb2.Function) -> Iterable[str]:
        opset = _OPSETS.get(function.opset, function.opset.lower())
        takes = ", ".join(f"{self.type(value.type)} {value.name}" for value in function.inputs)
        yield f"{_INDENT}func {name}<{opset}>({takes}) {{"
        yield from self.block(function.block_specializations[function.opset], 3)

    def block(self, block: MIL_pb2.Block, depth: int) -> Iterable[str]:
        for proto in block.operations:
            yield from self.operation(proto, depth)
        yield f"{_INDENT * (depth - 1)}}} -> ({', '.join(block.outputs)});"

    def operation(self, proto: MIL_pb2.Operation, depth: int) -> Iterable[str]:
        makes = ", ".join(f"{self.type(value.type)} {value.name}" for value in proto.outputs)
        takes = ", ".join(f"{name} = {self.argument(proto.inputs[name])}" for name in sorted(proto.inputs))
        names = sorted(proto.attributes, key=lambda name: (name != "name", name))
        attributes = ", ".join(f"{name} = {self.value(proto.attributes[name])}" for name in names)
        line = f"{_INDENT * depth}{makes}{' = ' if makes else ''}{proto.type}({takes})"
        line += f"[{attributes}]" if attributes else ""
        if not proto.blocks:
            yield f"{line};"
            return
        for block in proto.blocks:
            inputs = ", ".join(f"{self.type(value.type)} {value.name}" for value in block.inputs)
            yield f"{line} ({inputs}) {{"
            yield from self.block(block, depth + 2)
            line = f"{_INDENT * depth}"

    def argument(self, argument: MIL_pb2.Argument) -> str:
        parts = [
            binding.name if binding.WhichOneof("binding") == "name" else self.value(binding.value)
            for binding in argument.arguments
        ]
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    def type(self, kind: MIL_pb2.ValueType) -> str:
        which = kind.WhichOneof("type")
        if which == "tensorType":
            tensor = kind.tensorType
            dtype = DTYPE_NAMES.get(tensor.dataType, "unknown")
            if self.has_scalars and not tensor.dimensions and tensor.rank <= 0:
                return dtype
            return f"tensor<{dtype}, [{', '.join(map(_size, tensor.dimensions))}]>"
        if which == "listType":
            return f"list<{self.type(kind.listType.type)}, {_size(kind.listType.length)}>"
        if which == "dictionaryType":
            return f"dict<{self.type(kind.dictionaryType.keyType)}, {self.type(kind.dictionaryType.valueType)}>"
        if which == "tupleType":
            return f"tuple<{', '.join(map(self.type, kind.tupleType.types))}>"
        return f"state<{self.type(kind.stateType.wrappedType)}>"

    def value(self, value: MIL_pb2.Value) -> str:
        if value.WhichOneof("value") == "blobFileValue":
            blob = value.blobFileValue
            return (
                f"{self.type(value.type)}(BLOBFILE(path = {self._scalar('string', _quoted(blob.fileName))}, "
                f"offset = {self._scalar('uint64', str(blob.offset))}))"
            )
        return f"{self.type(value.type)}({self.content(value)})"

    def content(self, value: MIL_pb2.Value) -> str:
        immediate = value.immediateValue
        which = immediate.WhichOneof("value")
        if which == "tensor":
            return _tensor(value.type.tensorType, immediate.tensor)
        if which == "dictionary":
            pairs = [f"{{{self.content(one.key)}, {self.content(one.value)}}}" for one in immediate.dictionary.values]
            return f"{{{', '.join(pairs)}}}"
        if which in ("list", "tuple"):
            return f"({', '.join(self.content(item) for item in getattr(immediate, which).values)})"
        return ""

    def _scalar(self, dtype: str, text: str) -> str:
        return f"{dtype}({text})" if self.has_scalars else f"tensor<{dtype}, []>({text})"


def _size(dimension: MIL_pb2.Dimension) -> str:
    return str(dimension.constant.size) if dimension.WhichOneof("dimension") == "constant" else "?"


def _tensor(kind: MIL_pb2.TensorType, tensor: MIL_pb2.TensorValue) -> str:
    """Return the numbers of an immediate tensor, nested as its shape; sub-byte types as their bytes."""
    field = tensor.WhichOneof("value")
    if field is None:
        return "[]"
    dtype = DTYPE_NAMES.get(kind.dataType, "unknown")
    held = getattr(tensor, field).values
    if field == "bytes":
        numbers = np.frombuffer(held, NUMPY[dtype]) if dtype in NUMPY and dtype != "bool" else np.frombuffer(held, "u1")
        texts = [_number(number) for number in numbers.tolist()]
    else:
        texts = [_number(item) for item in held]
    shape = [size.constant.size for size in kind.dimensions]
    if shape and np.prod(shape) == len(texts):
        return _nested(texts, shape)
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _nested(texts: list[str], shape: list[int]) -> str:
    if len(shape) == 1:
        return f"[{', '.join(texts)}]"
    step = len(texts) // shape[0] if shape[0] else 0
    return f"[{', '.join(_nested(texts[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))}]"


def _number(item: bool | str | float) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str):
        return _quoted(item)
    return item.hex() if isinstance(item, float) else str(item)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

"""Packages written op by op through the protobuf: no coremltools, milliseconds each."""

import math
import struct
from pathlib import Path
from typing import Any

from ane_sweep.mil import package, text_values
from ane_sweep.mil.element_types import DTYPE_NUMBERS
from ane_sweep.mil.proto import Model_pb2
from ane_sweep.mil.weights import ALIGNMENT, DTYPES, SENTINEL, VERSION

Spec = tuple[str, tuple[int | None, ...]]  # ("fp16", (1, 64, 32, 32))


class Writer:
    """Collects ops of functions; `save` writes the package. Sizes of None are unknown until run time."""

    def __init__(self, **inputs: Spec):
        self.spec = Model_pb2.Model(specificationVersion=9)
        self.names = 0
        self.records: list[tuple[int, int, int]] = []  # of the weight file: offset, code of the type, bytes
        self.end = ALIGNMENT
        self.start("main", inputs)

    def start(self, function: str, inputs: dict[str, Spec]) -> None:
        self.function = self.spec.mlProgram.functions[function]
        self.function.opset = "CoreML8"
        self.block = self.function.block_specializations["CoreML8"]
        for name, (dtype, shape) in inputs.items():
            _typed(self.function.inputs.add(name=name).type, dtype, shape)

    def const(self, dtype: str, shape: tuple[int, ...], values: tuple | str | None = None) -> str:
        """A constant; without values zeros in the weight file."""
        name = self._name("const")
        proto = self.block.operations.add(type="const")
        _typed(proto.outputs.add(name=name).type, dtype, shape)
        held = proto.attributes["val"]
        _typed(held.type, dtype, shape)
        if values is None:
            held.blobFileValue.fileName = package.WEIGHTS_NAME
            held.blobFileValue.offset = self._record(dtype, math.prod(shape))
        elif dtype == "string":
            held.immediateValue.tensor.strings.values.append(values)
        else:
            field = {"int32": "ints", "fp32": "floats", "bool": "bools"}[dtype]
            getattr(held.immediateValue.tensor, field).values.extend(values)
        return name

    def op(self, kind: str, out: Spec | list[Spec], block: Any = None, **inputs: str | list[str]) -> Any:
        """Append an op; returns its output's name, or the list of them."""
        proto = (block or self.block).operations.add(type=kind)
        for parameter, value in inputs.items():
            for name in [value] if isinstance(value, str) else value:
                proto.inputs[parameter].arguments.add(name=name)
        made = []
        for dtype, shape in out if isinstance(out, list) else [out]:
            made.append(self._name(kind))
            _typed(proto.outputs.add(name=made[-1]).type, dtype, shape)
        self.last = proto
        return made if isinstance(out, list) else made[0]

    def runs(self, *outputs: str) -> "Writer":
        """With these outputs and a description, as whoever runs the program needs them."""
        self.block.outputs.extend(outputs)
        text_values.describe(self.spec)
        return self

    def save(self, path: Path, weight_bytes: int = 64) -> Path:
        weights = package.create(path)
        with open(weights, "wb") as file:
            file.truncate(max(weight_bytes, self.end))  # sparse: a 3 GB weight file takes no disk
            file.write(struct.pack("<II", len(self.records), VERSION))
            for offset, code, size in self.records:
                file.seek(offset)
                file.write(struct.pack("<IIQQQ", SENTINEL, code, size, offset + ALIGNMENT, 0))
        package.write(path, self.spec)
        return path

    def _record(self, dtype: str, count: int) -> int:
        code, bits = next((code, bits) for code, (name, bits) in DTYPES.items() if name == dtype)
        offset, size = self.end, -(-count * bits // 8)
        self.records.append((offset, code, size))
        self.end = offset + ALIGNMENT + -(-size // ALIGNMENT) * ALIGNMENT
        return offset

    def _name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}_{self.names}"


def _typed(value_type: Any, dtype: str, shape: tuple[int | None, ...]) -> None:
    tensor = value_type.tensorType
    tensor.dataType = DTYPE_NUMBERS[dtype]
    tensor.rank = len(shape)
    for length in shape:
        dimension = tensor.dimensions.add()
        if length is None:
            dimension.unknown.variadic = False
        else:
            dimension.constant.size = length


IMAGE = ("fp16", (1, 64, 32, 32))


def convolutions(path: Path, count: int = 8, odd: str | None = None) -> str:
    """A chain of convolutions; `odd` stands behind the third one."""
    writer, value = Writer(x=IMAGE), "x"
    for index in range(count):
        value = writer.op("conv", IMAGE, x=value, weight=writer.const("fp16", (64, 64, 3, 3)))
        if odd and index == 2:
            value = writer.op(odd, IMAGE, x=value)
    return str(writer.save(path))


def conv_chain(path: Path, layers: int, channels: int = 64, size: int = 32, **more: Any) -> Path:
    """`layers` of 3x3 convolution and relu: on the ANE from a few layers on."""
    image = ("fp16", (1, channels, size, size))
    writer = Writer(x=image)
    value, same = "x", writer.const("string", (), "same")
    for _ in range(layers):
        weight = writer.const("fp16", (channels, channels, 3, 3))
        value = writer.op("relu", image, x=writer.op("conv", image, x=value, weight=weight, pad_type=same))
    return writer.runs(value).save(path, **more)

"""Programs made for benchmarks, written directly: a chain of large layers, and the many ops of `bench lint` with weights."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep.mil import element_types, package
from ane_sweep.mil.proto import FeatureTypes_pb2, Model_pb2
from ane_sweep.mil.weights import BlobWriter, blob_values
from tests.bench.lint import typed

_HALF = 1  # the weight file's code for fp16


def linear_chain(folder: Path, size: int, width: int) -> tuple[Path, int]:
    """A package of `linear` layers (width, width), fp16, with about `size` bytes of weights; and how many layers."""
    count = max(1, round(size / (2 * width * width)))
    target, shape = folder / "layers.mlpackage", (width, width)
    spec = Model_pb2.Model(specificationVersion=9)
    function = spec.mlProgram.functions["main"]
    function.opset = "CoreML8"
    block = function.block_specializations["CoreML8"]
    typed(function.inputs.add(name="x").type, "fp16", (1, width))
    with BlobWriter(package.create(target)) as weights:
        for index in range(count):
            weight = block.operations.add(type="const")
            typed(weight.outputs.add(name=f"w{index}").type, "fp16", shape)
            typed(weight.attributes["val"].type, "fp16", shape)
            held = weight.attributes["val"].blobFileValue
            held.fileName, held.offset = package.WEIGHTS_NAME, _add(weights, shape, index)
            layer = block.operations.add(type="linear")
            layer.inputs["x"].arguments.add(name=f"y{index - 1}" if index else "x")
            layer.inputs["weight"].arguments.add(name=f"w{index}")
            typed(layer.outputs.add(name=f"y{index}").type, "fp16", (1, width))
    block.outputs.append(f"y{count - 1}")
    _describe(spec)
    package.write(target, spec)
    return target, count


def with_weights(path: Path) -> Path:
    """The package of `bench.lint.build`, made fit to run: one weight record that all its convolutions share."""
    found = package.read(path)
    (block,) = found.spec.mlProgram.functions["main"].block_specializations.values()
    values = [value for proto in block.operations for value in blob_values(proto)]
    kind = element_types.tensor_type(values[0].type)
    assert kind is not None
    with BlobWriter(found.model_path.parent / "weights" / "weight.bin") as weights:
        offset = _add(weights, tuple(size or 1 for size in kind.shape), 0)
    for value in values:
        value.blobFileValue.offset = offset
    _describe(found.spec)
    found.model_path.write_bytes(found.spec.SerializeToString())
    return path


def _add(weights: BlobWriter, shape: tuple[int, ...], seed: int) -> int:
    """Small integers times a power of two that keeps a layer's output about as large as its input."""
    rows = shape[0]
    generator = np.random.default_rng(seed)
    rest = int(np.prod(shape[1:]))
    scale = np.float16(2.0 ** -round(math.log2(2.6 * math.sqrt(rest))))  # 2.6: deviation of -4 .. 4

    def pieces() -> Iterator[bytes]:
        for first in range(0, rows, 1024):
            count = min(1024, rows - first)
            yield (generator.integers(-4, 5, (count, rest), dtype=np.int8) * scale).tobytes()

    return weights.add_pieces(_HALF, 2 * rows * rest, 0, pieces())


def _describe(spec: Any) -> None:
    """Features for the inputs and outputs of the one function, fp16 arrays."""
    (function,) = spec.mlProgram.functions.values()
    (block,) = function.block_specializations.values()
    types = {value.name: value.type for proto in block.operations for value in proto.outputs}
    described = [(spec.description.input, value.name, value.type) for value in function.inputs]
    described += [(spec.description.output, name, types[name]) for name in block.outputs]
    for features, name, kind in described:
        array = features.add(name=name).type.multiArrayType
        array.dataType = FeatureTypes_pb2.ArrayFeatureType.FLOAT16
        array.shape.extend(size.constant.size for size in kind.tensorType.dimensions)

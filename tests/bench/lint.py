"""lint on a program of 16,500 ops, from process start to exit"""

import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from ane_sweep.mil import package
from ane_sweep.mil.element_types import DTYPE_NUMBERS
from ane_sweep.mil.proto import MIL_pb2, Model_pb2
from ane_sweep.mil.weights import ALIGNMENT, BlobWriter
from tests.bench import Row, timed

OPS = 16_500
WIDTH, TOKENS = 256, 128
LIMIT_S = 3.0
_PATTERN = ("conv", "add", "softmax", "mul", "reduce_mean")


def build(folder: Path, ops: int = OPS) -> Path:
    """Write a package of `ops` ops in a chain, with the constants that such ops have; all convolutions read one weight."""
    target = folder / "large.mlpackage"
    with BlobWriter(package.create(target)) as weights:
        weights.add_pieces(1, 2 * WIDTH * WIDTH, 0, iter([bytes(2 * WIDTH * WIDTH)]))
    spec = Model_pb2.Model(specificationVersion=9)
    function = spec.mlProgram.functions["main"]
    function.opset = "CoreML8"
    block = function.block_specializations["CoreML8"]
    source = function.inputs.add(name="x")
    typed(source.type, "fp16", (1, WIDTH, 1, TOKENS))
    before = "x"
    for index in range(ops):
        before = _add_op(block, _PATTERN[index % len(_PATTERN)], before, f"v{index}")
    block.outputs.append(before)
    package.write(target, spec)
    return target


def _add_op(block: Any, kind: str, before: str, name: str) -> str:
    shape = (1, WIDTH, 1, TOKENS)
    inputs = {"x": before}
    if kind == "conv":
        weight = block.operations.add(type="const")
        typed(weight.outputs.add(name=f"{name}_weight").type, "fp16", (WIDTH, WIDTH, 1, 1))
        typed(weight.attributes["val"].type, "fp16", (WIDTH, WIDTH, 1, 1))
        weight.attributes["val"].blobFileValue.fileName = package.WEIGHTS_NAME
        weight.attributes["val"].blobFileValue.offset = ALIGNMENT
        inputs["weight"] = f"{name}_weight"
        for parameter, values in (("strides", (1, 1)), ("pad", (0, 0, 0, 0)), ("dilations", (1, 1))):
            inputs[parameter] = _integers(block, f"{name}_{parameter}", values)
    elif kind in ("add", "mul"):
        inputs["y"] = before
    elif kind == "softmax":
        inputs["axis"] = _integers(block, f"{name}_axis", (1,), scalar=True)
    else:
        inputs["axes"] = _integers(block, f"{name}_axes", (2,))
        inputs["keep_dims"] = _true(block, f"{name}_keep_dims")
    proto = block.operations.add(type=kind)
    for parameter, value in inputs.items():
        proto.inputs[parameter].arguments.add(name=value)
    typed(proto.outputs.add(name=name).type, "fp16", shape)
    return name


def _integers(block: Any, name: str, values: tuple[int, ...], *, scalar: bool = False) -> str:
    proto = block.operations.add(type="const")
    shape = () if scalar else (len(values),)
    typed(proto.outputs.add(name=name).type, "int32", shape)
    held = proto.attributes["val"]
    typed(held.type, "int32", shape)
    held.immediateValue.tensor.ints.values.extend(values)
    return name


def _true(block: Any, name: str) -> str:
    proto = block.operations.add(type="const")
    typed(proto.outputs.add(name=name).type, "bool", ())
    typed(proto.attributes["val"].type, "bool", ())
    proto.attributes["val"].immediateValue.tensor.bools.values.append(True)
    return name


def typed(value_type: Any, dtype: str, shape: tuple[int, ...]) -> None:
    tensor = value_type.tensorType
    tensor.dataType = DTYPE_NUMBERS.get(dtype, MIL_pb2.FLOAT16)
    tensor.rank = len(shape)
    for length in shape:
        tensor.dimensions.add().constant.size = length


def lint_seconds(path: Path) -> float:
    """One `lint` of a package as a process of its own, from start to exit."""
    code = "import sys; from ane_sweep.verbs.lint import lint; sys.exit(lint(sys.argv[1:]))"
    options = ["--chip", "m4", "--compute-units", "cpu_and_ne", "--json"]
    return timed([sys.executable, "-P", "-c", code, str(path), *options], expect=(0, 1))


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = build(Path(folder))
        took = [lint_seconds(path) for _ in range(5)]
    row = Row(f"lint --json, {OPS} ops", f"{median(took):.2f} s", bar=f"under {LIMIT_S:g} s")
    return [row]

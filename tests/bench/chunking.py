"""chunks beside bisect_model: balance and boundary bytes; and a 3 GB package in four: time and memory (8 GB of disk)"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep.mil import package
from ane_sweep.mil.element_types import DTYPE_NUMBERS
from ane_sweep.mil.proto import Model_pb2
from ane_sweep.mil.weights import BlobWriter
from ane_sweep.planner import options
from tests.bench import Row, timed

OPTIONS = ("minilm", "gpt2")
GIGABYTES = 3.0
TOKENS, WIDTH, WIDE = 512, 1600, 6400  # of gpt2-xl
_FP16_CODE = 1  # mil/weights.py, DTYPES
_CHILD = """
import json, sys
from pathlib import Path
from ane_sweep.mil import chunker
from ane_sweep.bridge.protocol import peak_bytes
facts = chunker.chunk(Path(sys.argv[1]), Path(sys.argv[2]), chunker.ChunkRequest(int(sys.argv[3])))
Path(sys.argv[2], "said.json").write_text(json.dumps({**facts, "peak_bytes": peak_bytes()}))
"""


def run() -> list[Row]:
    """Conversions of MiniLM and GPT-2 (random weights, 128 tokens) cut by both, then the large one."""
    return [row for name in OPTIONS for row in beside_bisect(name)] + large(GIGABYTES)


def beside_bisect(name: str) -> list[Row]:
    """How even and how costly the cuts of one model are; a share is an equal part of the bytes, or the
    largest tensor where that has more."""
    from ane_sweep.worker.stages import chunk

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = _converted(name, Path(folder, "program"))

        def cut(count: int, pipeline: str) -> dict[str, Any]:
            params = {"count": count, "by": "bytes", "own": "none", "pipeline": pipeline}
            out = Path(folder, f"{pipeline}_{count}")
            out.mkdir()
            return chunk.run(params, {"program": program}, out).facts

        theirs = cut(2, "bisect")
        for count in (2, 3, 4, 8):
            ours = cut(count, "manual")
            beside = theirs if count == 2 else None
            what = f"{name} in {count}: "
            rows.append(Row(what + "largest chunk / share", _balance(ours), _balance(beside)))
            rows.append(Row(what + "bytes handed over", _handed_over(ours), _handed_over(beside)))
    return rows


def _balance(facts: dict[str, Any] | None) -> str:
    if facts is None:
        return ""
    share = max(sum(facts["chunk_bytes"]) / facts["chunks"], facts["largest_tensor_bytes"])
    return f"{max(facts['chunk_bytes']) / share:.3f}"


def _handed_over(facts: dict[str, Any] | None) -> str:
    return f"{sum(facts['boundary_bytes']):,}" if facts else ""


def _converted(name: str, out: Path) -> Path:

    from ane_sweep.worker.stages import convert

    option = options.shipped("model", name)
    model = {key: option[key] for key in ("family", "task", "arch")}
    weights = {"kind": "random", "digest": "random:0", "seed": 0}
    out.mkdir()
    asked = {"model": model, "weights": weights, "seq_len": 128, "variant": "original", "target": "iOS18"}
    convert.run({**asked, "compute": "fp16", "options": {}}, {}, out)
    return out


def large(gigabytes: float, count: int = 4) -> list[Row]:
    """A made package of that size, cut in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        source = build(Path(folder), gigabytes)
        size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
        out = Path(folder, "out")
        out.mkdir()
        took = timed([sys.executable, "-P", "-c", _CHILD, str(source), str(out), str(count)])
        said = json.loads((out / "said.json").read_text(encoding="utf-8"))
    what = f"{size / 1e9:.2f} GB in {count}: "
    return [
        Row(what + "wall, from process start", f"{took:.1f} s", bar="under 60 s"),
        Row(what + "peak memory / size", f"{said['peak_bytes'] / size:.3f}", bar="at most 1.2"),
        Row(what + "largest chunk / share", _balance(said), bar="at most 1.1"),
    ]


def build(folder: Path, gigabytes: float) -> Path:
    """Write a package of blocks x + linear(gelu(linear(x))), weights random and all different."""
    blocks = max(4, round(gigabytes * 1e9 / (4 * WIDTH * WIDE)))
    target = folder / "large.mlpackage"
    spec = Model_pb2.Model(specificationVersion=9)
    function = spec.mlProgram.functions["main"]
    spec.mlProgram.version = 1
    function.opset = "CoreML8"
    block = function.block_specializations["CoreML8"]
    shape = (1, TOKENS, WIDTH)
    _typed(function.inputs.add(name="x").type, shape)
    before = "x"
    with BlobWriter(package.create(target)) as writer:
        for index in range(blocks):
            wide = _linear(block, writer, before, f"up_{index}", WIDTH, WIDE)
            bent = _op(block, "gelu", f"gelu_{index}", (1, TOKENS, WIDE), x=wide)
            narrow = _linear(block, writer, bent, f"down_{index}", WIDE, WIDTH)
            before = _op(block, "add", f"sum_{index}", shape, x=before, y=narrow)
    block.outputs.append(before)
    for name, features in (("x", spec.description.input), (before, spec.description.output)):
        array = features.add(name=name).type.multiArrayType
        array.shape.extend(shape)
        array.dataType = array.FLOAT16
    package.write(target, spec)
    return target


def _linear(block: Any, writer: BlobWriter, before: str, name: str, width_in: int, width_out: int) -> str:
    const = block.operations.add(type="const")
    held = const.attributes["val"]
    for value_type in (held.type, const.outputs.add(name=f"{name}_weight").type):
        _typed(value_type, (width_out, width_in))
    size = 2 * width_in * width_out
    random = np.random.default_rng(writer.count)
    offset = writer.add_pieces(_FP16_CODE, size, 0, iter([random.bytes(size)]))
    held.blobFileValue.fileName, held.blobFileValue.offset = package.WEIGHTS_NAME, offset
    return _op(block, "linear", name, (1, TOKENS, width_out), x=before, weight=f"{name}_weight")


def _op(block: Any, kind: str, name: str, shape: tuple[int, ...], **inputs: str) -> str:
    proto = block.operations.add(type=kind)
    for parameter, value in inputs.items():
        proto.inputs[parameter].arguments.add(name=value)
    _typed(proto.outputs.add(name=name).type, shape)
    return name


def _typed(value_type: Any, shape: tuple[int, ...]) -> None:
    tensor = value_type.tensorType
    tensor.dataType, tensor.rank = DTYPE_NUMBERS["fp16"], len(shape)
    for length in shape:
        tensor.dimensions.add().constant.size = length

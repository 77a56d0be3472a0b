"""Damage to a chain is found: where the proof finds no difference, the chain computes the same bits as the whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mil.test_chunker_random import CALM, X, dense, random_program

from ane_sweep.errors import AneSweepError, ChunkError
from ane_sweep.mil import chunker, package, same
from ane_sweep.mil.element_types import DTYPE_NUMBERS, FEATURES
from ane_sweep.mil.weights import blob_values
from ane_sweep.worker.runtimes.reference import ReferenceRuntime


@pytest.fixture(scope="module")
def chains(mil, tmp_path_factory):
    """[(source, paths of its chunks)]: a program whose seams are cast, one with states and packed weights, two of one file."""
    made = []
    for name in ("cast", "states"):
        folder = tmp_path_factory.mktemp(name)
        if name == "cast":
            source = mil.save(
                folder / "model.mlpackage", {"x": X.astype(np.float32)}, lambda x: cast_body(mil, x), "iOS15"
            )
        else:
            steps = [
                ("linear", 0, 0, 0),
                ("update", 2, 0, 0),
                ("packed", 3, 1, 1),
                ("read", 4, 0, 1),
                ("packed", 5, 0, 1),
            ]
            source = random_program(mil, folder, ([*steps, ("add", 6, 4, 0), ("softmax", 7, 0, 0)], [4, 8]))
        chunker.chunk(source, folder / "chunks", chunker.ChunkRequest(3))
        made.append((source, package.program_paths(folder / "chunks")))
    return made


def cast_body(mil, x):
    mb = mil.mb
    half = mb.cast(x=x, dtype="fp16")
    for seed in range(3):
        mask = mb.greater(x=half, y=np.float16(0.1))
        half = mb.select(cond=mask, a=mb.linear(x=half, weight=dense(mb, seed)), b=mb.tanh(x=half))
    return mb.cast(x=half, dtype="fp32")


def read(paths):
    return [package.read(path) for path in paths]


def block_of(one):
    (function,) = one.spec.mlProgram.functions.values()
    return function.block_specializations[function.opset]


def outputs(paths, feeds):
    runtime = ReferenceRuntime(list(paths))
    runtime.reset()
    return [runtime.predict({name: value for name, value in feeds.items() if name in runtime.inputs}) for _ in range(2)]


KINDS = ("drop", "type", "read", "rename", "value", "again", "out", "feature", "order", "dtype", "swap", "seam", "told")


def damage(chunks, draw) -> None:
    """Change one thing in one chunk, in memory, or in its weight file."""
    one = draw(st.sampled_from(chunks))
    ops = list(block_of(one).operations)
    op = draw(st.sampled_from(ops))
    (function,) = one.spec.mlProgram.functions.values()
    names = sorted({value.name for other in ops for value in other.outputs} | {value.name for value in function.inputs})
    kind = draw(st.sampled_from(KINDS))
    block = block_of(one)
    if kind == "drop":
        block.operations.remove(op)
    elif kind == "type":
        op.type = draw(st.sampled_from(("tanh", "relu", "add", "mul", "identity", "cast", "softmax")))
    elif kind == "read" and (given := [a for key in sorted(op.inputs) for a in op.inputs[key].arguments if a.name]):
        draw(st.sampled_from(given)).name = draw(st.sampled_from(names))
    elif kind == "rename" and op.outputs:
        op.outputs[0].name = draw(st.sampled_from(names))
    elif kind == "value" and "val" in op.attributes:
        alter(op.attributes["val"], [value.blobFileValue.offset for other in ops for value in blob_values(other)], draw)
    elif kind == "again":
        block.operations.add().CopyFrom(op)
    elif kind == "out":
        block.outputs[draw(st.integers(0, len(block.outputs) - 1))] = draw(st.sampled_from(names))
    elif kind == "feature":
        chosen = draw(st.sampled_from(list(function.inputs)))
        if chosen.type.WhichOneof("type") == "tensorType":
            chosen.type.tensorType.dataType = 10 if chosen.type.tensorType.dataType == 11 else 11
    elif kind == "order":
        chunks.reverse()
    elif kind == "swap" and (after := ops.index(op) + 1) < len(ops):
        del block.operations[:]
        block.operations.extend([*ops[: after - 1], ops[after], op, *ops[after + 1 :]])
    elif kind == "told" and len(one.spec.description.output):
        array = draw(st.sampled_from(list(one.spec.description.output))).type.multiArrayType
        array.dataType = draw(st.sampled_from(list(FEATURES.values())))
    elif kind == "seam" and op.type == "cast":
        carry_as(draw(st.sampled_from(("fp16", "fp32", "int32", "bool"))), op, chunks)
    elif kind == "dtype" and op.outputs and op.outputs[0].type.WhichOneof("type") == "tensorType":
        op.outputs[0].type.tensorType.dataType = draw(st.sampled_from((10, 11, 1)))


def carry_as(dtype, cast, chunks) -> None:
    """Let a cast make another type, and all chunks that take what it makes."""
    (made,), (told,) = cast.outputs, cast.inputs["dtype"].arguments
    number = DTYPE_NUMBERS[dtype]
    made.type.tensorType.dataType = number
    for one in chunks:
        for op in block_of(one).operations:
            if told.name in [value.name for value in op.outputs]:
                op.attributes["val"].immediateValue.tensor.strings.values[0] = dtype
        for value in [value for function in one.spec.mlProgram.functions.values() for value in function.inputs]:
            if value.name == made.name:
                value.type.tensorType.dataType = number


def alter(value, offsets, draw) -> None:
    if value.HasField("blobFileValue"):
        value.blobFileValue.offset = draw(st.sampled_from([*offsets, 128]))
    elif (strings := value.immediateValue.tensor.strings.values) and len(strings):
        strings[0] = draw(st.sampled_from(("fp16", "fp32", "int32", "bool")))
    else:
        kind = value.immediateValue.tensor.WhichOneof("value")
        held = getattr(value.immediateValue.tensor, kind) if kind else None
        if kind == "bytes" and held.values:
            held.values = bytes([held.values[0] ^ 1]) + held.values[1:]
        elif held is not None and len(held.values):
            held.values[0] = type(held.values[0])(1 - held.values[0])


@pytest.mark.parametrize("examples", [40, pytest.param(3000, marks=pytest.mark.slow)])
def test_no_damage_passes(chains, tmp_path_factory, examples):
    feeds = {"x": X, "y": X[::-1].copy()}
    expected = [outputs([source], typed(source, feeds)) for source, _ in chains]
    found, harmless = [], []

    @settings(max_examples=examples, deadline=None, suppress_health_check=CALM, derandomize=examples == 40)
    @given(data=st.data())
    def law(data):
        which = data.draw(st.integers(0, len(chains) - 1))
        source, paths = chains[which]
        chunks = read(paths)
        damage(chunks, data.draw)
        try:
            difference = same.find_difference(package.read(source), chunks)
        except AneSweepError as error:
            difference = str(error)
        if difference:
            found.append(difference)
            return
        folder = tmp_path_factory.mktemp("damaged")
        again = [write(one, folder / package.chunk_name(number)) for number, one in enumerate(chunks)]
        for got, wanted in zip(outputs(again, typed(source, feeds)), expected[which], strict=True):
            for name in wanted:
                np.testing.assert_array_equal(got[name], wanted[name])
        harmless.append(which)

    law()
    assert len(found) > len(harmless) > 0, "the damage does too little, or too much, to show anything"


def typed(source, feeds):
    return {name: value.astype(np.float32) for name, value in feeds.items()} if "cast" in str(source) else feeds


def write(one, target):
    weights = one.model_path.parent / "weights" / "weight.bin"
    place = package.create(target)
    if weights.is_file():
        package.link_or_copy(weights, place)
    package.write(target, one.spec)
    return target


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_byte_of_a_weight_is_found(chains, tmp_path, part):
    source, paths = chains[1]
    chunks = read(paths)
    path = write(chunks[part], tmp_path / "model.mlpackage")
    file = path / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"
    content = bytearray(file.read_bytes())
    file.unlink()
    if len(content) < 200:
        pytest.skip("this chunk has no weights")
    content[130] ^= 1
    file.write_bytes(content)
    chunks[part] = package.read(path)
    assert "is not the program's" in (same.find_difference(package.read(source), chunks) or "")


def test_chunks_that_are_not_the_program_are_refused(chains, tmp_path, monkeypatch):
    write_chunk = chunker.writer.write

    def lose_an_op(parts, target):
        for _, piece in parts.values():
            piece.ops.pop(next(place for place, op in enumerate(piece.ops) if op.type == "tanh"))
        write_chunk(parts, target)

    monkeypatch.setattr(chunker.writer, "write", lose_an_op)
    with pytest.raises(
        ChunkError, match=r"its chunks are not the program, a mistake of ours: chunk 1: .*; please report it"
    ):
        chunker.chunk(chains[0][0], tmp_path, chunker.ChunkRequest(2))

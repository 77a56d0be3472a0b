"""Cuts one ML Program into n that run in a chain and compute the same bits.

No op that computes is repeated. Constants (and what depends on them alone) go to every chunk that uses them. A
chunk's inputs are the program's own inputs that it reads, then the values of earlier chunks that it reads; its
outputs are the program's own outputs that it makes, then the values that later chunks read. So whoever drives the
chain keeps all tensors by name and gives each chunk what it asks for. Weights are streamed from file to file and
never parsed.
"""

import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ane_sweep.errors import ChunkError
from ane_sweep.mil import chain, cuts, graph, package
from ane_sweep.mil.graph import Op, Program
from ane_sweep.mil.proto import FeatureTypes_pb2, MIL_pb2, Model_pb2
from ane_sweep.mil.weights import BlobWriter

_ARRAY = FeatureTypes_pb2.ArrayFeatureType
_FEATURE_DTYPES = {"fp16": _ARRAY.FLOAT16, "fp32": _ARRAY.FLOAT32, "int32": _ARRAY.INT32}


@dataclass
class Chunk:
    """One piece: its ops in the program's order, and the names of its inputs and outputs."""

    ops: list[Op]
    inputs: list[str]
    outputs: list[str]


def chunk(source: Path, out: Path, count: int) -> dict[str, Any]:
    """Write `source` as `count` packages `chunk_01.mlpackage` ... into `out`.

    Returns facts: `chunk_bytes` (weight bytes of each), `boundary_bytes` (what is handed over at each cut),
    `cut_points` (legal cuts). Raises errors.ChunkError when the program has fewer than `count` - 1 of those,
    errors.PackageError when it cannot be read.
    """
    program = graph.load(source)
    line = cuts.line_up(program)
    points = len(line.positions)
    if count < 1:
        raise ChunkError(f"chunks={count}: a program is cut into 1 or more chunks")
    if count > points + 1:
        raise ChunkError(
            f"chunks={count}: {source.name} has {points} cut points, so it makes at most {points + 1} chunks; "
            f"ask for chunks=1 to {points + 1}"
        )
    chosen = cuts.choose(line, count)
    for index, piece in enumerate(pieces(line, chosen)):
        target = out / package.chunk_name(index)
        if count == 1:
            shutil.copytree(source, target)
        else:
            write(program, piece, target)
    return {
        "chunk_bytes": _chunk_bytes(line, chosen),
        "boundary_bytes": [line.crossing[place] for place in chosen],
        "cut_points": points,
    }


def pieces(line: cuts.Line, chosen: list[int]) -> list[Chunk]:
    """The chunks between the cuts `chosen`."""
    program = line.program
    edges = [0, *chosen, len(line.compute)]
    made = {name: place for place, op in enumerate(line.compute) for name in op.outputs}
    last_read = {name: place for place, names in enumerate(line.reads) for name in names if name in made}
    unread = set(program.inputs).difference(*line.reads) if line.reads else set(program.inputs)
    result = []
    for start, end in pairwise(edges):
        is_first, is_last = start == 0, end == len(line.compute)
        read = set().union(*line.reads[start:end])
        if is_last:  # outputs that no computing op makes: constants, or inputs passed through
            read |= {name for name in program.outputs if name not in made}
        own = [name for op in line.compute[start:end] for name in op.outputs]
        wanted = read | (unread if is_first else set())
        inputs = [name for name in program.inputs if name in wanted]
        inputs += sorted((name for name in read if made.get(name, start) < start), key=lambda name: (made[name], name))
        outputs = [name for name in program.outputs if name in own or (is_last and name not in made)]
        outputs += [name for name in own if last_read.get(name, -1) >= end and name not in outputs]
        result.append(Chunk(_with_constants(line, start, end, read), inputs, outputs))
    return result


def _with_constants(line: cuts.Line, start: int, end: int, read: set[str]) -> list[Op]:
    """The ops of a chunk and every constant below them, in the program's order."""
    needed: dict[int, Op] = {op.index: op for op in line.compute[start:end]}
    open_names = list(read)
    while open_names:
        op = line.constant.get(open_names.pop())
        if op is not None and op.index not in needed:
            needed[op.index] = op
            open_names += op.reads
    return [needed[index] for index in sorted(needed)]


def _chunk_bytes(line: cuts.Line, chosen: list[int]) -> list[int]:
    edges = [0, *chosen, len(line.compute)]
    return [sum(line.sizes[key] for key in frozenset().union(*line.blobs[start:end])) for start, end in pairwise(edges)]


def write(program: Program, piece: Chunk, target: Path) -> None:
    """Write one chunk as a package that stands alone."""
    spec, block = _empty_spec(program)
    function = spec.mlProgram.functions["main"]
    _describe(program, piece, spec)
    names = set(program.types)
    for name in piece.inputs:
        _add_input(program, function, block, name, names)
    for op in piece.ops:
        block.operations.add().CopyFrom(op.proto)
    for name in piece.outputs:
        block.outputs.append(_add_output(program, block, name, names))
    with BlobWriter(package.create(target)) as writer:
        _move_weights(program, block, writer)
    package.write(target, spec)


def _empty_spec(program: Program) -> tuple[Any, Any]:
    """A Model like the source's, without ops or features, and its block."""
    source = program.spec
    spec = Model_pb2.Model(specificationVersion=source.specificationVersion, isUpdatable=False)
    spec.description.metadata.CopyFrom(source.description.metadata)
    spec.description.metadata.userDefined[chain.OUTPUTS_KEY] = ",".join(program.outputs)
    spec.mlProgram.version = source.mlProgram.version
    for key, value in source.mlProgram.attributes.items():
        spec.mlProgram.attributes[key].CopyFrom(value)
    function = spec.mlProgram.functions["main"]
    function.opset = program.opset
    for key, value in program.function.attributes.items():
        function.attributes[key].CopyFrom(value)
    block = function.block_specializations[program.opset]
    for key, value in program.block.attributes.items():
        block.attributes[key].CopyFrom(value)
    return spec, block


def _describe(program: Program, piece: Chunk, spec: Any) -> None:
    """Fill the model's description: the program's own features as they were, boundary values as plain arrays."""
    source = program.spec.description
    own_inputs = {feature.name: feature for feature in source.input}
    own_outputs = {feature.name: feature for feature in source.output}
    states = {feature.name: feature for feature in source.state}
    for name in piece.inputs:
        if name in states:
            spec.description.state.add().CopyFrom(states[name])
        else:
            _add_feature(program, spec.description.input, own_inputs, name)
    for name in piece.outputs:
        _add_feature(program, spec.description.output, own_outputs, name)
    for field in ("predictedFeatureName", "predictedProbabilitiesName"):
        if getattr(source, field) in piece.outputs:
            setattr(spec.description, field, getattr(source, field))


def _add_feature(program: Program, features: Any, own: dict[str, Any], name: str) -> None:
    feature = features.add()
    if name in own:
        feature.CopyFrom(own[name])
        return
    kind = program.tensor_type(name)
    assert kind is not None  # cuts.py only crosses tensors
    feature.name = _feature_name(program, name)
    array = feature.type.multiArrayType
    array.shape.extend(kind.shape)
    array.dataType = _FEATURE_DTYPES["fp32" if cuts.needs_cast(program, kind) else kind.dtype]


def _is_cast(program: Program, name: str) -> bool:
    """Whether a boundary value travels as fp32; the program's own inputs and outputs stay as they are."""
    kind = program.tensor_type(name)
    own = name in program.inputs or name in program.outputs
    return kind is not None and not own and cuts.needs_cast(program, kind)


def _feature_name(program: Program, name: str) -> str:
    if not _is_cast(program, name):
        return name
    feature = f"{name}_as_fp32"
    while feature in program.types:
        feature += "_"
    return feature


def _add_input(program: Program, function: Any, block: Any, name: str, names: set[str]) -> None:
    feature = function.inputs.add()
    feature.name = _feature_name(program, name)
    feature.type.CopyFrom(program.types[name])
    if _is_cast(program, name):
        feature.type.tensorType.dataType = MIL_pb2.FLOAT32
        _add_cast(block, feature.name, name, program.types[name], "fp16", names)


def _add_output(program: Program, block: Any, name: str, names: set[str]) -> str:
    feature = _feature_name(program, name)
    if _is_cast(program, name):
        _add_cast(block, name, feature, program.types[name], "fp32", names)
    return feature


def _add_cast(block: Any, source: str, made: str, like: Any, dtype: str, names: set[str]) -> None:
    """Append `made = cast(source)`, with the const that names the type."""
    parameter = f"{made}_dtype"
    while parameter in names:
        parameter += "_"
    names.add(parameter)
    const = block.operations.add(type="const")
    const.attributes["name"].CopyFrom(_string(parameter))
    const.attributes["val"].CopyFrom(_string(dtype))
    const.outputs.add(name=parameter).type.tensorType.dataType = MIL_pb2.STRING
    cast = block.operations.add(type="cast")
    cast.attributes["name"].CopyFrom(_string(f"{made}_cast"))
    cast.inputs["x"].arguments.add(name=source)
    cast.inputs["dtype"].arguments.add(name=parameter)
    output = cast.outputs.add(name=made)
    output.type.CopyFrom(like)
    output.type.tensorType.dataType = graph.DTYPE_NUMBERS[dtype]


def _string(text: str) -> Any:
    value = MIL_pb2.Value()
    value.type.tensorType.dataType = MIL_pb2.STRING
    value.immediateValue.tensor.strings.values.append(text)
    return value


def _move_weights(program: Program, block: Any, writer: BlobWriter) -> None:
    """Copy the weights that a block refers to, each once, and point the block to where they are now."""
    moved: dict[tuple[str, int], int] = {}
    for proto in block.operations:
        for value in graph.blob_values(proto):
            reference = value.blobFileValue
            key = (reference.fileName, reference.offset)
            if key not in moved:
                moved[key] = writer.add(program.package.blobs(key[0]), key[1])
            reference.fileName = package.WEIGHTS_NAME
            reference.offset = moved[key]

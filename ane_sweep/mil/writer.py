"""Write one chunk as a self-contained package: one or more functions over one weight file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ane_sweep.errors import PackageError
from ane_sweep.mil import chain, line, package
from ane_sweep.mil.element_types import DTYPE_NAMES, DTYPE_NUMBERS, FEATURES, string_value
from ane_sweep.mil.graph import Op, Program
from ane_sweep.mil.proto import MIL_pb2, Model_pb2
from ane_sweep.mil.weights import BlobKey, BlobWriter, blob_values

if TYPE_CHECKING:  # this type stands in proto.pyi alone
    from ane_sweep.mil.proto import Messages

    Features = Messages[Model_pb2.FeatureDescription]


@dataclass
class Chunk:
    """One piece of a function: its ops in the program's order, and the names of its inputs and outputs."""

    ops: list[Op]
    inputs: list[str]
    outputs: list[str]


def write(parts: dict[str, tuple[Program, Chunk]], target: Path) -> None:
    """Write one chunk of every function (by name, the default function first) as one package.

    Weights that several functions use are written once.
    """
    source = next(program.spec for program, _ in parts.values())
    spec = _empty_spec(source)
    moved: dict[BlobKey, int] = {}
    with BlobWriter(package.create(target)) as weights:
        for name, (program, piece) in parts.items():
            described: chain.Description = spec.description
            if len(source.description.functions):
                described = spec.description.functions.add(name=name)
            _describe(program, piece, chain.function_description(source, name), described)
            key = chain.outputs_key(name if len(parts) > 1 else "")
            spec.description.metadata.userDefined[key] = ",".join(program.outputs)
            block = _add_function(spec, name, program, piece)
            values = (value for proto in block.operations for value in blob_values(proto))
            program.package.move_blobs(values, weights, moved)
    package.write(target, spec)


def _empty_spec(source: Model_pb2.Model) -> Model_pb2.Model:
    """Return a Model like the source's, without functions or features."""
    spec = Model_pb2.Model(specificationVersion=source.specificationVersion, isUpdatable=False)
    spec.description.metadata.CopyFrom(source.description.metadata)
    spec.description.defaultFunctionName = source.description.defaultFunctionName
    spec.mlProgram.version = source.mlProgram.version
    for key, value in source.mlProgram.attributes.items():
        spec.mlProgram.attributes[key].CopyFrom(value)
    return spec


def _add_function(spec: Model_pb2.Model, called: str, program: Program, piece: Chunk) -> MIL_pb2.Block:
    """Add the piece as a function of the program and return its block."""
    function = spec.mlProgram.functions[called]
    function.opset = program.opset
    for key, value in program.function.attributes.items():
        function.attributes[key].CopyFrom(value)
    block = function.block_specializations[program.opset]
    for key, value in program.block.attributes.items():
        block.attributes[key].CopyFrom(value)
    names = set(program.types)
    for name in piece.inputs:
        feature = function.inputs.add(name=_feature_name(program, name))
        feature.type.CopyFrom(program.types[name])
        if dtype := _cast_to(program, name):
            own = DTYPE_NAMES[feature.type.tensorType.dataType]
            feature.type.tensorType.dataType = DTYPE_NUMBERS[dtype]
            _add_cast(block, feature.name, name, program.types[name], own, names)
    block.operations.extend(op.proto for op in piece.ops)
    for name in piece.outputs:
        made = _feature_name(program, name)
        if dtype := _cast_to(program, name):
            _add_cast(block, name, made, program.types[name], dtype, names)
        block.outputs.append(made)
    return block


def _describe(program: Program, piece: Chunk, source: chain.Description, target: chain.Description) -> None:
    """Fill a description: the program's own features unchanged, boundary values as plain arrays."""
    own_inputs = {feature.name: feature for feature in source.input}
    own_outputs = {feature.name: feature for feature in source.output}
    states = {feature.name: feature for feature in source.state}
    for name in piece.inputs:
        if name in states:
            target.state.add().CopyFrom(states[name])
        else:
            _add_feature(program, target.input, own_inputs, name)
    for name in piece.outputs:
        _add_feature(program, target.output, own_outputs, name)
    for field in ("predictedFeatureName", "predictedProbabilitiesName"):
        if getattr(source, field) in piece.outputs:
            setattr(target, field, getattr(source, field))


def _add_feature(program: Program, features: Features, own: dict[str, Model_pb2.FeatureDescription], name: str) -> None:
    feature = features.add()
    if name in own:
        feature.CopyFrom(own[name])
        return
    kind = program.default_type(name)
    if kind is None or not kind.is_static:  # line.py only lets tensors of known shapes cross
        path = program.package.path
        raise PackageError(f"{path}: its program gives `{name}`, which its description lacks; convert the model again")
    feature.name = _feature_name(program, name)
    array = feature.type.multiArrayType
    array.shape.extend(size or 0 for size in kind.shape)
    array.dataType = FEATURES[line.carrier(program, kind) or kind.dtype]
    if varying := program.varying.get(name):
        for shape in varying.shapes:
            array.enumeratedShapes.shapes.add().shape.extend(shape)
        for low, high in varying.ranges:
            array.shapeRange.sizeRanges.add(lowerBound=low, upperBound=-1 if high is None else high)


def _cast_to(program: Program, name: str) -> str | None:
    """Return the type to which a boundary value must be cast to cross a cut, or None if it crosses unchanged.

    The program's own inputs and outputs keep their types.
    """
    kind = program.tensor_type(name)
    if kind is None or name in program.inputs or name in program.outputs:
        return None
    dtype = line.carrier(program, kind)
    return None if dtype == kind.dtype else dtype


def _feature_name(program: Program, name: str) -> str:
    dtype = _cast_to(program, name)
    if dtype is None:
        return name
    feature = f"{name}_as_{dtype}"
    while feature in program.types:
        feature += "_"
    return feature


def _add_cast(
    block: MIL_pb2.Block, source: str, made: str, like: MIL_pb2.ValueType, dtype: str, names: set[str]
) -> None:
    """Append `made = cast(source)` to the block, with the const that names the type."""
    parameter = f"{made}_dtype"
    while parameter in names:
        parameter += "_"
    names.add(parameter)
    const = block.operations.add(type="const")
    const.attributes["name"].CopyFrom(string_value(parameter))
    const.attributes["val"].CopyFrom(string_value(dtype))
    const.outputs.add(name=parameter).type.tensorType.dataType = MIL_pb2.STRING
    cast = block.operations.add(type="cast")
    cast.attributes["name"].CopyFrom(string_value(f"{made}_cast"))
    cast.inputs["x"].arguments.add(name=source)
    cast.inputs["dtype"].arguments.add(name=parameter)
    output = cast.outputs.add(name=made)
    output.type.CopyFrom(like)
    output.type.tensorType.dataType = DTYPE_NUMBERS[dtype]

"""Parts of rewrites that change the interface: outputs replaced, ops without readers dropped, descriptions of functions."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path

from ane_sweep.fix.graph import Graph
from ane_sweep.fix.messages import has_effect
from ane_sweep.mil import chain
from ane_sweep.mil import graph as mil
from ane_sweep.mil.element_types import FEATURES
from ane_sweep.mil.graph import view_op
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import MIL_pb2, Model_pb2

OPSET = 8  # the first with several functions
_VERSION = 9  # of the specification with that opset

Functions = Mapping[str, tuple[MIL_pb2.Function, Model_pb2.FunctionDescription]]


def open_functions(package: Package, scratch: Path = Path(), like: dict[str, Graph] | None = None) -> dict[str, Graph]:
    """Return the functions of a package as graphs, with the ops of graphs that are open; without `scratch` they add no weight."""
    opened, names = like or {}, sorted(package.spec.mlProgram.functions)
    return {name: Graph(mil.view_program(package, name), scratch, opened.get(name)) for name in names}


def keep_default(package: Package) -> Package:
    """Return a package with its default function alone: figures of one call."""
    spec, default = deepcopy(package.spec), mil.default_function(package.spec)
    for name in list(spec.mlProgram.functions):
        if name != default:
            del spec.mlProgram.functions[name]
    return Package(package.path, package.model_path, spec)


def opset_number(function: MIL_pb2.Function) -> int:
    """Return the number of a function's opset: 8 for CoreML8."""
    return int("".join(filter(str.isdigit, function.opset)) or 5)


def describe_function(spec: Model_pb2.Model, name: str) -> Model_pb2.FunctionDescription:
    """Return a copy of a function's description as one of several functions has it."""
    source = chain.function_description(spec, name)
    kept = ("input", "output", "state", "predictedFeatureName", "predictedProbabilitiesName")
    return Model_pb2.FunctionDescription(**{part: getattr(source, part) for part in kept})


def set_functions(spec: Model_pb2.Model, functions: Functions, default: str) -> None:
    """Let a model have these functions and no others."""
    description = spec.description
    for part in ("input", "output", "state", "functions", "predictedFeatureName", "predictedProbabilitiesName"):
        description.ClearField(part)
    for name in list(spec.mlProgram.functions):
        del spec.mlProgram.functions[name]
    for name, (function, described) in functions.items():
        spec.mlProgram.functions[name].CopyFrom(function)
        made = description.functions.add()
        made.CopyFrom(described)
        made.name = name
    description.defaultFunctionName = default
    spec.specificationVersion = max(_VERSION, spec.specificationVersion)


def describe_value(graph: Graph, name: str) -> Model_pb2.FeatureDescription:
    """Return the description of a tensor as an input or output."""
    made = Model_pb2.FeatureDescription(name=name)
    made.type.multiArrayType.shape.extend(graph.shape(name))
    made.type.multiArrayType.dataType = FEATURES[graph.dtype(name)]
    return made


def name_output(graph: Graph, made: str, name: str) -> str:
    """Give a value that an op has just made, and that nothing reads, another name. Return the name."""
    maker = graph.maker(made)
    assert maker is not None
    maker.own().outputs[0].name = name
    graph.types[name] = graph.types[made]
    return name


def replace_outputs(package: Package, name: str, graph: Graph, new: Mapping[str, str]) -> None:
    """Let a function return other values (`new`: by the outputs that go), and drop the ops that nothing needs."""
    block, features = graph.write_block(), chain.function_description(package.spec, name).output
    outputs = list(dict.fromkeys(new.get(one, one) for one in block.outputs))
    own = {feature.name: feature for feature in features}
    described = [own[one] if one in own else describe_value(graph, one) for one in outputs]
    copies = [deepcopy(one) for one in described]
    del features[:]
    features.extend(copies)
    del block.outputs[:]
    block.outputs.extend(outputs)
    drop_dead(block)
    graph.program.block.CopyFrom(block)


def drop_dead(block: MIL_pb2.Block) -> None:
    """Remove the ops whose outputs nothing reads."""
    needed, kept = set(block.outputs), []
    for proto in reversed(block.operations):
        if has_effect(proto) or any(value.name in needed for value in proto.outputs):
            needed |= view_op(0, proto).reads
            kept.append(proto)
    rest = [deepcopy(proto) for proto in reversed(kept)]
    del block.operations[:]
    block.operations.extend(rest)

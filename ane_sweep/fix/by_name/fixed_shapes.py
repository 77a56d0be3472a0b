"""Replace ranges of sizes by a few fixed ones: a function for each over one weight file, or enumerated shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ane_sweep.errors import ConfigError
from ane_sweep.fix import values
from ane_sweep.fix.functions import OPSET, describe_function, drop_dead, opset_number, set_functions
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.interface import Change, InterfaceRewrite, Run
from ane_sweep.mil import chain
from ane_sweep.mil import graph as mil
from ane_sweep.mil.element_types import NUMPY, string_value, tensor_type
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import MIL_pb2, Model_pb2
from ane_sweep.placement import defaults, programs
from ane_sweep.placement.programs import Flexible
from ane_sweep.placement.sites import Tensor

REWRITE = InterfaceRewrite(
    order=10,
    help="inputs of a range of sizes -> a function for each of a few sizes, one weight file; below CoreML8 enumerated shapes",
    host="it chooses the function (below CoreML8: a listed shape) and pads its inputs to that size",
    condition="sizes: the default, the highest and up to three halvings of it (without a limit: from 4 times the default), or --sizes",
    source="ekhodzitsky/gigastt pull request 42; FluidInference/FluidAudio, ANE_Profiler",
    evidence="369 -> 23.6 ms, 0 -> 94 % of the ops on the Neural Engine, reported there; here predicted only",
)

_HALVINGS = 4
_OPEN = 4  # times the default, if there is no highest size

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class _Axis:
    """One axis that takes a range of sizes."""

    feature: str
    place: int
    low: int
    high: int | None
    default: int

    def refuses(self, size: int) -> bool:
        return size < self.low or (self.high is not None and size > self.high)

    def __str__(self) -> str:
        return f"axis {self.place} of `{self.feature}`, {self.low} to {self.high or 'any size'}"


def find(graphs: Sequence[Graph]) -> list[str]:
    if len(graphs) != 1:
        return []
    package = graphs[0].program.package
    return [one.name for one in _list_ranges(package, *package.spec.mlProgram.functions)]


def change(package: Package, sizes: str) -> Change:
    spec = package.spec
    name = mil.default_function(spec)
    ranges, axes = _list_ranges(package, name), _list_axes(package, name)
    buckets = _choose_buckets(ranges, axes, sizes)
    if opset_number(spec.mlProgram.functions[name]) < OPSET:
        return _enumerate(package, name, buckets)
    made = {_make_name(shapes, axes): shapes for shapes in buckets}
    default = {one.name: one.default for one in ranges}
    functions = {
        key: (_fix_function(package, name, shapes), _describe(package, name, shapes)) for key, shapes in made.items()
    }
    set_functions(spec, functions, next((key for key in made if made[key] == default), next(iter(made))))
    note = f"functions {', '.join(made)}; figures of {spec.description.defaultFunctionName}"
    return Change(package, note, [Run(name, key, shapes) for key, shapes in made.items()])


def _list_ranges(package: Package, function: str) -> list[Flexible]:
    _, found = programs.inputs_at(package, function, {})
    return [one for one in found if one.kind == "range" and one.default is not None]


def _list_axes(package: Package, function: str) -> list[_Axis]:
    features = {one.name: one for one in chain.function_description(package.spec, function).input}
    return [
        _Axis(one.name, place, low, high, size)
        for one in _list_ranges(package, function)
        for place, ((low, high), size) in enumerate(
            zip(defaults.bounds(features[one.name], len(one.default or ())), one.default or ())
        )
        if high is None or high > low
    ]


def _choose_buckets(ranges: list[Flexible], axes: list[_Axis], sizes: str) -> list[Shapes]:
    """Return the input shapes of each size: those asked for, or the default and the halvings of the highest."""
    if sizes:
        wanted = [_read_sizes(text, axes) for text in sizes.split(",")]
    else:
        most = [axis.high or _OPEN * axis.default for axis in axes]
        wanted = [[max(axis.low, -(-top >> step)) for axis, top in zip(axes, most)] for step in range(_HALVINGS)]
        wanted.append([axis.default for axis in axes])
    found = []
    for numbers in sorted(wanted):
        shapes = {one.name: list(one.default or ()) for one in ranges}
        for axis, number in zip(axes, numbers):
            shapes[axis.feature][axis.place] = number
        found.append({name: tuple(shape) for name, shape in shapes.items()})
    return [one for place, one in enumerate(found) if one not in found[:place]]


def _read_sizes(text: str, axes: list[_Axis]) -> list[int]:
    """Return a size for each axis from "128", for all of them, or from "224x320", one after the other."""
    parts = text.split("x")
    if not all(part.isdecimal() for part in parts) or len(parts) not in (1, len(axes)):
        raise ConfigError(
            f"--sizes {text}: a size for all axes, as 128, or one for each, as {'x'.join(['128'] * len(axes))}"
        )
    numbers = [int(part) for part in (parts * len(axes) if len(parts) == 1 else parts)]
    for axis, number in zip(axes, numbers):
        if axis.refuses(number):
            raise ConfigError(f"--sizes {text}: {number} is out of the range of {axis}")
    return numbers


def _make_name(shapes: Mapping[str, tuple[int, ...]], axes: list[_Axis]) -> str:
    numbers = [shapes[axis.feature][axis.place] for axis in axes]
    return "at_" + "x".join(map(str, numbers[:1] if len(set(numbers)) == 1 else numbers))


def _enumerate(package: Package, name: str, buckets: list[Shapes]) -> Change:
    """List the shapes in the description: the program stays."""
    if len(buckets[0]) > 1:
        raise ValueError(
            "several inputs take ranges, and below CoreML8 one input may list shapes; convert for target=iOS18"
        )
    ((feature_name, _),) = buckets[0].items()
    (feature,) = (one for one in package.spec.description.input if one.name == feature_name)
    for (shape,) in (one.values() for one in buckets):
        if feature.type.WhichOneof("Type") == "imageType":
            height, width = shape[-2:]
            feature.type.imageType.enumeratedSizes.sizes.add(height=height, width=width)
        else:
            feature.type.multiArrayType.enumeratedShapes.shapes.add().shape.extend(shape)
    note = f"`{feature_name}` takes {len(buckets)} shapes; several functions need target=iOS18"
    return Change(package, note, [Run(name, name, shapes) for shapes in buckets])


def _describe(package: Package, name: str, shapes: Shapes) -> Model_pb2.FunctionDescription:
    """Return the description of a function for inputs of these shapes."""
    made = describe_function(package.spec, name)
    tensors = programs.values_at(package, name, shapes)
    for feature in (*made.input, *made.output):
        _fix_feature(feature, tuple(size or 1 for size in tensors[feature.name].shape))
    return made


def _fix_feature(feature: Model_pb2.FeatureDescription, shape: tuple[int, ...]) -> None:
    if feature.type.WhichOneof("Type") == "imageType":
        image = feature.type.imageType
        image.height, image.width = shape[-2:]
        image.ClearField("imageSizeRange")
        return
    array = feature.type.multiArrayType
    array.ClearField("shapeRange")
    del array.shape[:]
    array.shape.extend(shape)


def _fix_function(package: Package, name: str, shapes: Mapping[str, tuple[int, ...]]) -> MIL_pb2.Function:
    """Return a copy of a function for inputs of these shapes: sizes known, whole numbers that follow from sizes as constants.

    Weights are referred to, never read. Raises ValueError if a size does not follow from the shapes.
    """
    tensors = programs.values_at(package, name, dict(shapes))
    made = MIL_pb2.Function()
    made.CopyFrom(package.spec.mlProgram.functions[name])
    block = made.block_specializations[made.opset]
    for value in made.inputs:
        _fix_type(value, tensors[value.name])
    for proto in block.operations:
        for value in proto.outputs:
            _fix_type(value, tensors[value.name])
        for inner in proto.blocks:
            _refuse_unknown(inner)
        _fold(proto, tensors, package)
    drop_dead(block)
    return made


def _fix_type(value: MIL_pb2.NamedValueType, tensor: Tensor) -> None:
    kind = tensor_type(value.type)
    if kind is None or kind.is_static:
        return
    if not tensor.is_static:
        raise ValueError(f"the sizes of `{value.name}` do not follow from the inputs' sizes")
    value.type.CopyFrom(values.make_type(kind.dtype, tensor.shape))


def _refuse_unknown(block: MIL_pb2.Block) -> None:
    for value in (*block.inputs, *(made for proto in block.operations for made in proto.outputs)):
        kind = tensor_type(value.type)
        if kind is not None and not kind.is_static:
            raise ValueError(f"`{value.name}` inside control flow has sizes that are not known")
    for proto in block.operations:
        for inner in proto.blocks:
            _refuse_unknown(inner)


def _fold(proto: MIL_pb2.Operation, tensors: Mapping[str, Tensor], package: Package) -> None:
    """Turn an op into a const if its result is whole numbers or booleans that follow from sizes."""
    if proto.type == "const" or proto.blocks or len(proto.outputs) != 1:
        return
    (value,) = proto.outputs
    kind, tensor = tensor_type(value.type), tensors[value.name]
    if kind is None or kind.dtype not in NUMPY or NUMPY[kind.dtype].kind == "f":
        return
    if not tensor.const or tensor.value is None:
        return
    found = np.reshape(np.asarray(tensor.value), [size or 0 for size in kind.shape]).astype(NUMPY[kind.dtype])
    made = MIL_pb2.Operation(type="const")
    made.attributes["name"].CopyFrom(string_value(value.name))
    made.attributes["val"].CopyFrom(values.make_immediate(found))
    made.outputs.add().CopyFrom(value)
    proto.CopyFrom(made)

"""A function of a program that takes several shapes, written anew for one shape: sizes known, whole numbers that follow
from sizes as constants. Weights are referred to, never read.
"""

from collections.abc import Mapping

import numpy as np

from ane_sweep.fix import values
from ane_sweep.fix.functions import drop_dead
from ane_sweep.mil.element_types import NUMPY, string_value, tensor_type
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import MIL_pb2
from ane_sweep.placement import programs
from ane_sweep.placement.sites import Tensor


def fix_function(package: Package, name: str, shapes: Mapping[str, tuple[int, ...]]) -> MIL_pb2.Function:
    """Return a copy of a function for inputs of these shapes. Raises ValueError if a size does not follow from them."""
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
    made = [value for proto in block.operations for value in proto.outputs]
    for value in (*block.inputs, *made):
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
    shape = [size or 0 for size in kind.shape]
    found = np.reshape(np.asarray(tensor.value), shape).astype(NUMPY[kind.dtype])
    made = MIL_pb2.Operation(type="const")
    made.attributes["name"].CopyFrom(string_value(value.name))
    made.attributes["val"].CopyFrom(values.make_immediate(found))
    made.outputs.add().CopyFrom(value)
    proto.CopyFrom(made)

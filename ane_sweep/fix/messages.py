"""Read, copy and rename in the messages of ops."""

from collections.abc import Iterable, Iterator, Mapping

from ane_sweep.mil import graph as mil
from ane_sweep.mil.proto import MIL_pb2

_EFFECTS = {"write_state", "print", "coreml_update_state"}  # ops that run for what they do, not for what they make


def names_read(proto: MIL_pb2.Operation) -> set[str]:
    """Return the names of all outside values that an op needs."""
    if proto.blocks:
        return mil.view_op(0, proto).reads
    given = proto.inputs
    return {one.name for parameter in given for one in given[parameter].arguments if one.name}


def list_bindings(proto: MIL_pb2.Operation) -> Iterator[MIL_pb2.Argument.Binding]:
    """Yield every named argument of an op and of its nested blocks."""
    for argument in proto.inputs.values():
        yield from (binding for binding in argument.arguments if binding.name)
    for block in proto.blocks:
        for inner in block.operations:
            yield from list_bindings(inner)


def has_effect(proto: MIL_pb2.Operation) -> bool:
    """Return True for an op that must stay although nothing reads its outputs."""
    return proto.type in _EFFECTS or any(has_effect(inner) for block in proto.blocks for inner in block.operations)


def nested_names(ops: Iterable[MIL_pb2.Operation]) -> Iterator[str]:
    """Yield the names of all values inside the nested blocks of ops."""
    for proto in ops:
        for inner in proto.blocks:
            yield from (value.name for value in inner.inputs)
            yield from (value.name for made in inner.operations for value in made.outputs)
            yield from nested_names(inner.operations)


def rename_outputs(block: MIL_pb2.Block, old: str, new: str) -> None:
    """Rename a value where nested blocks return it."""
    names = [new if name == old else name for name in block.outputs]
    del block.outputs[:]
    block.outputs.extend(names)
    for proto in block.operations:
        for inner in proto.blocks:
            rename_outputs(inner, old, new)


def rename_reads(proto: MIL_pb2.Operation, names: Mapping[str, str]) -> None:
    """Rename the values that an op reads."""
    for argument in proto.inputs.values():
        for binding in argument.arguments:
            if binding.name in names:
                binding.name = names[binding.name]

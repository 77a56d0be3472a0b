"""View one program for matching: its executed ops, what they have in common with others, and their weights."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import numpy as np

from ane_sweep.mil import element_types, graph
from ane_sweep.mil.element_types import TensorType
from ane_sweep.mil.graph import Op
from ane_sweep.mil.proto import MIL_pb2
from ane_sweep.reference.model import Model

_FLOATS = ("fp16", "fp32", "fp64", "bf16")
_MOST_EXACT = 4096  # elements of a constant that are compared one by one
_SAMPLE = 2048  # elements at either end of a weight that are looked at to know it again
_DISTINCT = 8  # different numbers among them, or it could be any
_AXES = ("perm", "axis", "axes")
_DATA = {"cast": "x", "identity": "x", "quantize": "input", "dequantize": "input"}

Signature = tuple[object, ...]  # hashable
Weight = tuple[tuple[int | None, ...], bytes, bool]  # shape, some numbers in fp16, and if these are distinct enough


class ProgramSide:
    """One program, as its executed ops: `source` looks through ops that only change how a number is held."""

    def __init__(self, model: Model):
        self.ops: list[Op] = model.ops
        self.program, self.inputs, self.outputs = model.program, list(model.plan.inputs), list(model.plan.outputs)
        self.maker = {
            name: (place, index) for place, op in enumerate(self.ops) for index, name in enumerate(op.outputs)
        }

    @cached_property
    def constants(self) -> dict[str, Op]:
        return {op.outputs[0]: op for op in self.program.ops if op.type == "const" and op.outputs}

    def type_of(self, name: str) -> TensorType | None:
        return element_types.tensor_type(self.program.types[name]) if name in self.program.types else None

    def source(self, name: str) -> str:
        while name in self.maker and self.is_transparent(self.ops[self.maker[name][0]]):
            name = self.data(self.ops[self.maker[name][0]])
        return name

    def is_transparent(self, op: Op) -> bool:
        return op.type in _DATA and (
            op.type != "cast" or (self._is_float(op.outputs[0]) and self._is_float(self.data(op)))
        )

    def data(self, op: Op) -> str:
        return op.names(_DATA[op.type])[0]

    def _is_float(self, name: str) -> bool:
        kind = self.type_of(name)
        return kind is not None and kind.dtype in _FLOATS

    @cached_property
    def reads(self) -> list[list[str]]:
        """Return for each op the computed values that it reads, in the order of its parameters' names."""
        return [
            [
                self.source(name)
                for parameter in sorted(op.inputs)
                for name in op.names(parameter)
                if not self._is_constant(name)
            ]
            for op in self.ops
        ]

    def _is_constant(self, name: str) -> bool:
        return name not in self.maker and name not in self.inputs

    def signature(self, place: int) -> Signature:
        """Return all that two ops must have in common to be one, but for the values that they read and their weights."""
        op = self.ops[place]
        given = [
            (
                parameter,
                tuple(self._argument(op, parameter, index, name) for index, name in enumerate(op.names(parameter))),
            )
            for parameter in sorted(op.inputs)
        ]
        return op.type, len(op.outputs), tuple(given), tuple(_outline_block(block) for block in op.proto.blocks)

    def _argument(self, op: Op, parameter: str, index: int, name: str) -> object:
        if not self._is_constant(name):
            return None
        message = self._constant(op, parameter, index, name)
        kind = self.type_of(name) if message is None else element_types.tensor_type(message.type)
        if kind is None:
            return "no tensor"
        if kind.dtype in _FLOATS or message is None or kind.count > _MOST_EXACT:
            return "float" if kind.dtype in _FLOATS else kind.dtype, kind.shape
        value = graph.decode(message, self.program.package)
        exact = tuple(np.asarray(value).ravel().tolist())
        if parameter in _AXES:
            return self._normalise_axes(op, exact)
        return tuple("float" if item in _FLOATS else item for item in exact)

    def _normalise_axes(self, op: Op, axes: tuple[int, ...]) -> tuple[int, ...]:
        """Return axes counted from the first dimension: they may be given from either end."""
        kind = self.type_of((op.names("x") or op.names("values") or [""])[0])
        if kind is None:
            return axes
        rank = len(kind.shape) + {"expand_dims": len(axes), "stack": 1}.get(op.type, 0)
        return tuple(axis + rank if axis < 0 else axis for axis in axes)

    def _constant(self, op: Op, parameter: str, index: int, name: str) -> MIL_pb2.Value | None:
        """Return the Value message of a constant that is written down plainly; None if it was computed or compressed."""
        if name in self.constants:
            return self.constants[name].proto.attributes["val"]
        if parameter in op.proto.inputs and index < len(op.proto.inputs[parameter].arguments):
            argument = op.proto.inputs[parameter].arguments[index]
            return None if argument.name else argument.value
        return None

    def weights(self, place: int) -> dict[tuple[str, int], Weight]:
        """Return marks by which the uncompressed numbers of an op are recognised, by (parameter, index)."""
        op = self.ops[place]
        weights: dict[tuple[str, int], Weight] = {}
        for parameter in op.inputs:
            for index, name in enumerate(op.names(parameter)):
                message = self._constant(op, parameter, index, name) if self._is_constant(name) else None
                kind = None if message is None else element_types.tensor_type(message.type)
                if message is None or kind is None or kind.dtype not in _FLOATS:
                    continue
                flat = np.asarray(graph.decode(message, self.program.package)).reshape(-1)
                with np.errstate(over="ignore"):
                    seen = np.concatenate([flat[:_SAMPLE], flat[-_SAMPLE:]]).astype(np.float16)
                weights[parameter, index] = (kind.shape, seen.tobytes(), len(np.unique(seen)) >= _DISTINCT)
        return weights


def _outline_block(block: MIL_pb2.Block) -> tuple[object, ...]:
    return tuple((proto.type, *(_outline_block(inner) for inner in proto.blocks)) for proto in block.operations)


def find_writes(side: ProgramSide) -> dict[str, list[str]]:
    """Return state -> the values that are written into it, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for op in side.ops:
        if op.type == "write_state":
            found[op.names("input")[0]].append(op.names("data")[0])
    return found

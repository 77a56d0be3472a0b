"""Find the corresponding values of two programs by the ops around them, never by their names.

Names of values are generated, and shift when a program is compressed or converted again. The search starts at anchors
with names on both sides (inputs, outputs, states) and at weights that occur once in each program. From a pair it goes
back to the values that the ops read, parameter by parameter, and forward to the values that they make. Two ops pair if
they have the same type, shapes and constants, weights aside. The search ends where programs differ, and leaves out a
value that could correspond to several.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
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
    """One program as its executed ops: `source` skips ops that only change how a number is stored."""

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
        """Return everything that two ops must have in common to pair, apart from the values that they read and their weights."""
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
        """Return axes counted from the first dimension; in the program they may count from either end."""
        kind = self.type_of((op.names("x") or op.names("values") or [""])[0])
        if kind is None:
            return axes
        rank = len(kind.shape) + {"expand_dims": len(axes), "stack": 1}.get(op.type, 0)
        return tuple(axis + rank if axis < 0 else axis for axis in axes)

    def _constant(self, op: Op, parameter: str, index: int, name: str) -> MIL_pb2.Value | None:
        """Return the Value message of an uncompressed constant, or None if it was computed or compressed."""
        if name in self.constants:
            return self.constants[name].proto.attributes["val"]
        if parameter in op.proto.inputs and index < len(op.proto.inputs[parameter].arguments):
            argument = op.proto.inputs[parameter].arguments[index]
            return None if argument.name else argument.value
        return None

    def weights(self, place: int) -> dict[tuple[str, int], Weight]:
        """Return {(parameter, index): mark} of an op's uncompressed weights; equal weights have equal marks."""
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
    """Return {state: values written into it, in order}."""
    found: dict[str, list[str]] = defaultdict(list)
    for op in side.ops:
        if op.type == "write_state":
            found[op.names("input")[0]].append(op.names("data")[0])
    return found


@dataclass
class Matching:
    """The pairs of values between two programs.

    `of` maps values of the candidate to values of the reference. Its other values have no counterpart, because the
    programs differ there (`alone`), or several (`ambiguous`).
    """

    of: dict[str, str] = field(default_factory=dict)
    alone: list[str] = field(default_factory=list)
    ambiguous: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        left = [(self.alone, "where the programs differ"), (self.ambiguous, "that could be several of the other's")]
        texts = [f"{len(names)} {why}" for names, why in left if names]
        return f"left out: {', '.join(texts)}" if texts else ""


def match_values(reference: Model, candidate: Model) -> Matching:
    """Return the pairs of corresponding values of two models of different programs."""
    return _Matcher(ProgramSide(reference), ProgramSide(candidate)).run()


class _Matcher:
    """The search for pairs. `pairs`: index of the candidate's op -> of the reference's; `fixed`: those paired by their weights."""

    def __init__(self, a: ProgramSide, b: ProgramSide):
        self.a, self.b = a, b
        self.pairs: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.fixed: set[int] = set()
        self.ambiguous: set[int] = set()
        self.signatures_a = [a.signature(place) for place in range(len(a.ops))]
        self.signatures_b = [b.signature(place) for place in range(len(b.ops))]

    def run(self) -> Matching:
        for first, second in self._pair_by_weights():
            if self._take_pair(first, second):
                self.fixed.add(second)
        self._pair_backward([*self._pair_ends(), *self._read_by(list(self.pairs))])
        self._pair_forward()
        found = Matching()
        for place, op in enumerate(self.b.ops):
            if self.b.is_transparent(op) or not op.outputs:
                continue
            if place in self.pairs:
                found.of.update(zip(op.outputs, self.a.ops[self.pairs[place]].outputs))
            else:
                (found.ambiguous if place in self.ambiguous else found.alone).extend(op.outputs)
        return found

    def _pair_by_weights(self) -> list[tuple[int, int]]:
        """Return (index in the reference, in the candidate) of ops with the same weight, which occurs once in each program."""
        sides: list[dict[object, int]] = []
        for side in (self.a, self.b):
            keys = [
                ((side.ops[place].type, *parameter, *seen), place)
                for place in range(len(side.ops))
                for parameter, seen in side.weights(place).items()
            ]
            count = Counter(key for key, _ in keys)
            sides.append({key: place for key, place in keys if count[key] == 1 and key[-1]})
        first, second = sides
        return [(first[key], place) for key, place in second.items() if key in first]

    def _has_same_weights(self, first: int, second: int) -> bool:
        mine, its = self.a.weights(first), self.b.weights(second)
        both = mine.keys() & its.keys()
        return bool(both) and all(mine[key] == its[key] for key in both)

    def _pair_ends(self) -> list[tuple[str, str]]:
        """Return pairs of values by role: outputs by name (or in order if names differ), and values written to states."""
        a, b = self.a.outputs, self.b.outputs
        ends = (
            [(name, name) for name in b if name in a] if {*a} == {*b} else list(zip(a, b)) if len(a) == len(b) else []
        )
        writes = [find_writes(side) for side in (self.a, self.b)]
        for state, values in writes[1].items():
            if len(values) == len(writes[0].get(state, [])):
                ends += zip(writes[0][state], values)
        return ends

    def _read_by(self, places: list[int]) -> list[tuple[str, str]]:
        return [
            pair for place in places for pair in zip(self.a.reads[self.pairs[place]], self.b.reads[place], strict=True)
        ]

    def _pair_backward(self, todo: list[tuple[str, str]]) -> None:
        """Pair the ops that make corresponding values, then continue with the values that these ops read."""
        while todo:
            first, second = (side.source(name) for side, name in zip((self.a, self.b), todo.pop()))
            made, by = self.a.maker.get(first), self.b.maker.get(second)
            if made is None or by is None or made[1] != by[1]:
                continue
            if not self._is_denied(made[0], by[0]) and self._take_pair(made[0], by[0]):
                todo += self._read_by([by[0]])

    def _is_denied(self, first: int, second: int) -> bool:
        """Return True if weights show that two ops read different values."""
        if self.signatures_a[first] != self.signatures_b[second]:
            return True
        for one, other in zip(self.a.reads[first], self.b.reads[second]):
            mine, its = self.a.maker.get(one, (-1, 0))[0], self.b.maker.get(other, (-1, 0))[0]
            known = self.taken.get(mine, its)
            if (its in self.fixed and self.pairs[its] != mine) or (known != its and known in self.fixed):
                return True
        return False

    def _pair_forward(self) -> None:
        """Pair ops that read corresponding values, in order, if each side has only one such op (or one by its weights)."""
        groups: list[dict[object, list[int]]] = [defaultdict(list), defaultdict(list)]
        for side, signatures, group in zip((self.a, self.b), (self.signatures_a, self.signatures_b), groups):
            for place in range(len(side.ops)):
                group[signatures[place], tuple(side.reads[place])].append(place)
        for place in range(len(self.b.ops)):
            names = [self._find_counterpart(name) for name in self.b.reads[place]]
            if place in self.pairs or place in self.ambiguous or not names or None in names:
                continue
            signature = self.signatures_b[place]
            others = [one for one in groups[0].get((signature, tuple(names)), []) if one not in self.taken]
            alike = [one for one in groups[1][signature, tuple(self.b.reads[place])] if one not in self.pairs]
            if len(others) > 1 or len(alike) > 1:
                others = [one for one in others if self._has_same_weights(one, place)]
                alike = [one for one in alike if others and self._has_same_weights(others[0], one)]
                if len(others) != 1 or len(alike) != 1:
                    self.ambiguous.add(place)
                    continue
            if others:
                self._take_pair(others[0], place)

    def _find_counterpart(self, name: str) -> str | None:
        """Return the reference's value that corresponds to the candidate's; inputs correspond by name."""
        if name not in self.b.maker:
            return name if name in self.a.inputs else None
        place, index = self.b.maker[name]
        return self.a.ops[self.pairs[place]].outputs[index] if place in self.pairs else None

    def _take_pair(self, first: int, second: int) -> bool:
        """Record that two ops correspond and return True if that is new.

        Ops that already pair with other ones become ambiguous.
        """
        if second in self.ambiguous or self.signatures_a[first] != self.signatures_b[second]:
            return False
        if not self._has_same_shapes(first, second):
            return False
        if second not in self.pairs and first not in self.taken:
            self.pairs[second], self.taken[first] = first, second
            return True
        if self.pairs.get(second) == first:
            return False
        for place in {second, self.taken.get(first, second)} - self.fixed:
            self.ambiguous.add(place)
            if place in self.pairs:
                del self.taken[self.pairs.pop(place)]
        return False

    def _has_same_shapes(self, first: int, second: int) -> bool:
        for one, other in zip(self.a.ops[first].outputs, self.b.ops[second].outputs):
            kinds = self.a.type_of(one), self.b.type_of(other)
            shapes = [() if kind is None else kind.shape for kind in kinds]
            if len(shapes[0]) != len(shapes[1]) or any(
                x != y for x, y in zip(*shapes) if x is not None and y is not None
            ):
                return False
        return True

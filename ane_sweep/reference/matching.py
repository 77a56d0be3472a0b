"""Find which value of one program corresponds to which of another: by the ops around it, never by its name.

Names of values are generated, and shift when a program is compressed or converted again. Values are traced from anchors
given by name on both sides (inputs, outputs, states) and from weights that occur once in each program: from a value back
to the values that its op reads, parameter by parameter, and from the values that an op reads on to those that it makes. A
pair is two ops of one type with the same constants but for weights, of the same shape. The trace ends where programs differ,
and a value that could correspond to several is left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from ane_sweep.reference.model import Model
from ane_sweep.reference.signatures import ProgramSide, find_writes


@dataclass
class Matching:
    """The pairs of values of two programs.

    `of` maps each of the candidate's values to the reference's. The candidate's other values have no counterpart, because the
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
    """Return the pairs of values of two models of different programs."""
    return _Matcher(ProgramSide(reference), ProgramSide(candidate)).run()


class _Matcher:
    """The search for pairs. `pairs`: place of an op of the candidate -> of the reference; `fixed`: those known by their weights."""

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
        """Return (place in the reference, in the candidate) of ops with the same weight, which occurs once in each program."""
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
        """Return values that correspond by their role: outputs by name, or in order if names differ; states written."""
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
        """Pair the ops that make corresponding values, and go on with the values that these ops read."""
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
        """Pair ops that read corresponding values, in order, if there is one such op on either side (or one by its weights)."""
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
        """Return the reference's value for one of the candidate's; inputs go by their names."""
        if name not in self.b.maker:
            return name if name in self.a.inputs else None
        place, index = self.b.maker[name]
        return self.a.ops[self.pairs[place]].outputs[index] if place in self.pairs else None

    def _take_pair(self, first: int, second: int) -> bool:
        """Note that two ops are one and return True if that is new.

        Ops that another trace has paired otherwise become ambiguous.
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

"""Find the ops of one prediction in another one: by structure and torch module, never by names, which change between conversions.

Ops pair in rounds. In each, every op has a key made of all that comes before it, and one of all that comes after it;
ops whose keys are as frequent on both sides pair in file order. The first round counts shapes and modules, the next
modules alone, the last types alone. From pairs the search goes on along the values that they read and make. Ops left
between two pairs are aligned by their order.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

from ane_sweep.placement.structure import OpOutline

_MOST_PRODUCT = 250_000  # of the lengths of two gaps; longer ones are not aligned, as that takes the square of the time
_LEVELS: tuple[Callable[[OpOutline], Hashable], ...] = (
    lambda op: (op.function, op.op_type, op.module, tuple(op.outputs)),
    lambda op: (op.function, op.op_type, op.module),
    lambda op: (op.function, op.op_type),
)
Keys = Sequence[Hashable]


def match_ops(before: Sequence[OpOutline], after: Sequence[OpOutline]) -> dict[int, int]:
    """Return {index in `after`: index in `before`} of the ops that correspond."""
    matcher = _OpMatcher(before, after)
    for level in _LEVELS:
        matcher.pair_by_surroundings(level)
        matcher.spread()
    for level in _LEVELS:
        matcher.align(level)
        matcher.spread()
    return matcher.pairs


class _OpMatcher:
    """The search for pairs. `taken` is `pairs` the other way round; `numbers` gives equal keys of both sides one number."""

    def __init__(self, before: Sequence[OpOutline], after: Sequence[OpOutline]):
        self.sides = (before, after)
        self.pairs: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.numbers: dict[Hashable, int] = {}
        self.readers = tuple(_list_readers(side) for side in self.sides)

    def pair_by_surroundings(self, level: Callable[[OpOutline], Hashable]) -> None:
        """Pair ops by all that is before and after them, then by either of the two."""
        up, down = ([make(side, level) for side in (0, 1)] for make in (self._keys_up, self._keys_down))
        for keys in ([list(zip(*one)) for one in zip(up, down)], up, down):
            self._pair_by(keys[0], keys[1])

    def _keys_up(self, side: int, level: Callable[[OpOutline], Hashable]) -> list[int]:
        keys: list[int] = []
        for op in self.sides[side]:
            keys.append(self._number((level(op), *(keys[read] if read >= 0 else -1 for read in op.reads))))
        return keys

    def _keys_down(self, side: int, level: Callable[[OpOutline], Hashable]) -> list[int]:
        ops, readers = self.sides[side], self.readers[side]
        keys = [0] * len(ops)
        for place in range(len(ops) - 1, -1, -1):
            after = sorted((slot, keys[reader]) for reader, slot in readers[place])
            keys[place] = self._number((level(ops[place]), "down", *after))
        return keys

    def _number(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def _pair_by(self, before: Keys, after: Keys) -> None:
        groups: list[dict[Hashable, list[int]]] = []
        for keys, done in ((before, self.taken), (after, self.pairs)):
            groups.append(defaultdict(list))
            for place, key in enumerate(keys):
                if place not in done:
                    groups[-1][key].append(place)
        for key, places in groups[1].items():
            if len(others := groups[0].get(key, ())) == len(places):
                for first, second in zip(others, places):
                    self._pair(first, second)

    def _pair(self, first: int, second: int) -> bool:
        """Pair two ops of one type in one function, unless one of them has a pair, and return True if they pair now."""
        if (
            first in self.taken
            or second in self.pairs
            or _LEVELS[-1](self.sides[0][first]) != _LEVELS[-1](self.sides[1][second])
        ):
            return False
        self.pairs[second], self.taken[first] = first, second
        return True

    def spread(self) -> None:
        """Pair the ops before and after each pair, slot by slot, as long as a slot has one op of a type on each side."""
        todo = list(self.pairs.items())
        while todo:
            second, first = todo.pop()
            near = list(zip(self.sides[0][first].reads, self.sides[1][second].reads))
            readers = [self._only_readers(side, place) for side, place in ((0, first), (1, second))]
            near += [(place, readers[1][key]) for key, place in readers[0].items() if key in readers[1]]
            todo += [(b, a) for a, b in near if a >= 0 and b >= 0 and self._pair(a, b)]

    def _only_readers(self, side: int, place: int) -> dict[Hashable, int]:
        """Return {(slot, type): op} of the ops that read an op's value, but for a slot and type with several of them."""
        found: dict[Hashable, int] = {}
        several = set()
        for reader, slot in self.readers[side][place]:
            key = (slot, self.sides[side][reader].op_type)
            if key in found:
                several.add(key)
            found[key] = reader
        return {key: reader for key, reader in found.items() if key not in several}

    def align(self, level: Callable[[OpOutline], Hashable]) -> None:
        """Pair ops between two pairs in the order in which both sides have them."""
        ends = [(-1, -1), *self._ordered_pairs(), (len(self.sides[0]), len(self.sides[1]))]
        for (a, b), (next_a, next_b) in pairwise(ends):
            first = [place for place in range(a + 1, next_a) if place not in self.taken]
            second = [place for place in range(b + 1, next_b) if place not in self.pairs]
            if not first or not second or len(first) * len(second) > _MOST_PRODUCT:
                continue
            keys = [[level(ops[place]) for place in places] for ops, places in zip(self.sides, (first, second))]
            for block in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_matching_blocks():
                for step in range(block.size):
                    self._pair(first[block.a + step], second[block.b + step])

    def _ordered_pairs(self) -> list[tuple[int, int]]:
        """Return the most pairs that stand in the same order on both sides (a longest increasing subsequence)."""
        ends: list[int] = []
        tails: list[tuple[int, int | None]] = []  # (op of `after`, index in `tails` of the one before)
        at: list[int] = []
        for second in sorted(self.pairs):
            length = bisect_left(ends, self.pairs[second])
            ends[length : length + 1] = [self.pairs[second]]
            at[length : length + 1] = [len(tails)]
            tails.append((second, at[length - 1] if length else None))
        found, step = [], at[-1] if at else None
        while step is not None:
            second, step = tails[step]
            found.append((self.pairs[second], second))
        return found[::-1]


def _list_readers(ops: Sequence[OpOutline]) -> list[list[tuple[int, int]]]:
    """Return for each op the ops that read its values, each with the slot in which it reads."""
    found: list[list[tuple[int, int]]] = [[] for _ in ops]
    for place, op in enumerate(ops):
        for slot, read in enumerate(op.reads):
            if read >= 0:
                found[read].append((place, slot))
    return found

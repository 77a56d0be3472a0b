"""Views: values that hold the elements of another value in another order, by reshapes and transposes.

    view = AxisView.transpose((1, 8, 4), (0, 2, 1)).then(AxisView.reshape((1, 4, 8), (1, 4, 1, 8)))
    view.steps             # [("reshape", (1, 1, 8, 4)), ("transpose", (0, 3, 1, 2))]
    view.inverse()         # back to (1, 8, 4)

A chain of reshapes and transposes has one normal form, so that two chains can be compared, merged and cancelled.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from math import prod

MOST_AXES = 5  # of a tensor in an ML Program
Shape = tuple[int, ...]
Step = tuple[str, Shape]


@dataclass(frozen=True)
class AxisView:
    """A map from a value of shape `source` to one of `shape`.

    The source is seen as an array with the sizes `atoms` (all above 1), whose axes are permuted by `order`; the result is
    reshaped. No two atoms can be merged into one.
    """

    source: Shape
    atoms: Shape
    order: Shape
    shape: Shape

    @staticmethod
    @lru_cache(maxsize=4096)
    def reshape(source: Shape, shape: Shape) -> "AxisView":
        return _merge(source, [prod(source)], [0], shape)

    @staticmethod
    def transpose(source: Sequence[int], perm: Sequence[int]) -> "AxisView":
        return _transpose(tuple(source), tuple(perm))

    @property
    def keeps_order(self) -> bool:
        """Return True if a reshape alone makes this view."""
        return len(self.atoms) <= 1

    def inverse(self) -> "AxisView":
        """Return the view back to the source."""
        own = tuple(self.atoms[axis] for axis in self.order)
        return AxisView(self.shape, own, tuple(_invert(self.order)), self.source)

    def then(self, other: "AxisView") -> "AxisView | None":
        """Return the view that does this and then another, or None if their sizes do not divide each other."""
        return _join(self, other)

    def axis_of(self, axis: int) -> int | None:
        """Return the axis of the source that an axis of `shape` is, or None."""
        fine = self._fine
        if fine is None or self.shape[axis] == 1:
            return None
        atoms, order = fine
        own = [order[place] for place in _group(self.shape, [atoms[one] for one in order])[axis]]
        groups = [list(group) for group in _group(self.source, atoms)]
        return groups.index(own) if own in groups else None

    def resize(self, axis: int, size: int) -> "AxisView | None":
        """Return this view for another size of one axis of `shape`. None unless it is an axis of the source as well."""
        place, fine = self.axis_of(axis), self._fine
        if place is None or fine is None:
            return None
        atoms, order = list(fine[0]), fine[1]
        first, *rest = _group(self.source, atoms)[place]
        atoms[first] = size
        for atom in rest:
            atoms[atom] = 1
        source, shape = list(self.source), list(self.shape)
        source[place] = shape[axis] = size
        return _merge(source, atoms, order, shape)

    def for_operand(self, shape: Sequence[int]) -> "AxisView | None":
        """Return the view from an operand, which broadcasts with `self.shape`, to one that broadcasts with the source.

        None if an axis of the source would be repeated in part.
        """
        fine = self._fine
        if fine is None:
            return None
        own = (1,) * (len(self.shape) - len(shape)) + tuple(shape)
        atoms, order = fine
        kept = list(atoms)
        for size, group in zip(own, _group(self.shape, [atoms[one] for one in order]), strict=True):
            for place in group if size == 1 else ():
                kept[order[place]] = 1
        sizes = []
        for size, group in zip(self.source, _group(self.source, atoms), strict=True):
            repeated = {kept[atom] == 1 for atom in group}
            if len(repeated) > 1:
                return None
            sizes.append(1 if True in repeated else size)
        return replace(_merge(sizes, kept, order, own).inverse(), source=tuple(shape))

    @cached_property
    def steps(self) -> list[Step] | None:
        """Return the fewest reshapes (shape) and transposes (perm) that make this view; None if five axes do not do.

        A transpose of five axes is taken only if no other will do.
        """
        if self.keeps_order:
            return [] if self.source == self.shape else [("reshape", self.shape)]
        late, back = self._transpose_first(), self.inverse()._transpose_first()
        early: list[Step] | None = None
        if back is not None:
            perm = back[0][1]
            early = [("reshape", tuple(self.shape[axis] for axis in perm)), ("transpose", tuple(_invert(perm)))]
        front = max(0, 4 - len(self.atoms))
        whole: list[Step] = [
            ("reshape", (1,) * front + self.atoms),
            ("transpose", (*range(front), *(front + axis for axis in self.order))),
            ("reshape", self.shape),
        ]
        found = [steps for steps in (early, late, whole) if steps is not None]
        best = min(
            found, key=lambda steps: (max(len(given) for kind, given in steps if kind == "transpose") > 4, len(steps))
        )
        return best if max(len(given) for _, given in best) <= MOST_AXES else None

    def _transpose_first(self) -> list[Step] | None:
        """Return the transpose of the source's own axes, and the reshape after it if needed, or None."""
        back = self.inverse()._cut(self.source)
        dims = [axis for axis, size in enumerate(self.source) if size > 1]
        if back is None or len(back[0]) != len(dims):
            return None
        moved = [dims[atom] for atom in _invert(back[1])]
        units = [axis for axis, size in enumerate(self.source) if size == 1]
        if len(self.shape) == len(self.source):
            unit, other = iter(units), iter(moved)
            perm = [next(unit if size == 1 else other, -1) for size in self.shape]
            if -1 not in perm and tuple(self.source[axis] for axis in perm) == self.shape:
                return [("transpose", tuple(perm))]
        return [("transpose", (*units, *moved)), ("reshape", self.shape)]

    @cached_property
    def _fine(self) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return atoms and order, the atoms cut so that every axis of `source` and of `shape` is a product of some."""
        cut = self._cut(self.shape)
        back = AxisView(self.source, *cut, self.shape).inverse()._cut(self.source) if cut is not None else None
        if back is None:
            return None
        atoms, places = back
        return [atoms[place] for place in places], _invert(places)

    def _cut(self, sizes: Sequence[int]) -> tuple[Shape, Shape] | None:
        """Return atoms and order, the atoms cut so that `sizes`, of the result, are products of them; or None."""
        own = [self.atoms[axis] for axis in self.order]
        parts = _refine(own, sizes)
        if parts is None:
            return None
        groups = dict(zip(self.order, _group(own, parts), strict=True))
        atoms = [parts[place] for axis in range(len(self.atoms)) for place in groups[axis]]
        places = [place for axis in range(len(self.atoms)) for place in groups[axis]]
        return tuple(atoms), tuple(_invert(places))


@lru_cache(maxsize=4096)  # a program's layers repeat the same few
def _transpose(source: Shape, perm: Shape) -> AxisView:
    axes = [axis % len(source) for axis in perm]
    return _merge(source, source, axes, [source[axis] for axis in axes])


@lru_cache(maxsize=4096)
def _join(one: AxisView, other: AxisView) -> AxisView | None:
    first = one._cut(other.atoms)
    second = other.inverse()._cut([one.atoms[axis] for axis in one.order])
    if first is None or second is None:
        return None
    (atoms, order), (_, back) = first, second
    return _merge(one.source, atoms, [order[place] for place in _invert(back)], other.shape)


def _invert(places: Sequence[int]) -> list[int]:
    return sorted(range(len(places)), key=places.__getitem__)


def _group(sizes: Sequence[int], parts: Sequence[int]) -> list[range]:
    """Return for each size the places of the parts that it is the product of; a size of 1 has none."""
    found, place = [], 0
    for size in sizes:
        start, left = place, size
        while left > 1:
            left //= parts[place]
            place += 1
        found.append(range(start, place))
    return found


def _refine(first: Iterable[int], second: Iterable[int]) -> list[int] | None:
    """Return the sizes of the coarsest array that both lists of sizes are products of, or None."""
    marks = sorted({*_ends(first), *_ends(second)})
    if any(high % low for low, high in pairwise(marks)):
        return None
    return [high // low for low, high in pairwise(marks)][::-1]


def _ends(sizes: Iterable[int]) -> Iterable[int]:
    return accumulate(reversed(list(sizes)), lambda one, other: one * other, initial=1)


def _merge(source: Sequence[int], atoms: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> AxisView:
    """Return the view with atoms of size 1 left out and neighbours merged."""
    kept = [axis for axis in range(len(atoms)) if atoms[axis] > 1]
    runs: list[list[int]] = []
    for place in (kept.index(axis) for axis in order if atoms[axis] > 1):
        if runs and runs[-1][-1] + 1 == place:
            runs[-1].append(place)
        else:
            runs.append([place])
    first = sorted(runs)
    sizes = tuple(prod(atoms[kept[place]] for place in run) for run in first)
    return AxisView(tuple(source), sizes, tuple(first.index(run) for run in runs), tuple(shape))

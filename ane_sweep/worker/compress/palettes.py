"""Tables of values for palettized weights: the best 2^bits values for a weight's numbers, in the mean-square sense.

In one dimension k-means has an exact solution; coremltools carries it (`_deps/kmeans1d`) but reaches it only for
fp16 groups of 10,000 numbers and more, and falls back on scikit-learn's, which stops at a local optimum and depends on
threads. Here it serves every group. Numbers are clustered as fp16: a weight then has at most 65,536 distinct values.
"""

import ctypes
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

Group = tuple[np.ndarray, int, bool, np.ndarray | None]  # the arguments of `kmeans`
Key = tuple[bytes, int, bool]  # digest of the numbers, bits, ignore_zeros
Palette = tuple[np.ndarray, np.ndarray]  # table (2^bits,) of the weight's dtype, index (count,) uint8 of each number

_MOST_POINTS = 8  # points that the exact solution sees, per entry of the table ...
_LEAST_POINTS = 2048  # ... and at least; more distinct values are merged beforehand
_POLISH = 4  # Lloyd steps over all distinct values afterwards
_CODES = 1 << 16
PIECE = 1 << 20  # numbers that are looked at in one go
_VALUES = np.arange(_CODES, dtype=np.uint16).view(np.float16)


def kmeans(numbers: np.ndarray, bits: int, ignore_zeros: bool = False, importance: np.ndarray | None = None) -> Palette:
    """Return the palette of `numbers`, any shape, fp16 or fp32, finite.

    ignore_zeros   zeros are masked out elsewhere and get no entry
    importance     weights of the numbers' errors, of a shape that broadcasts to that of `numbers`
    """
    codes = to_codes(numbers)
    counts = _count_codes(codes)
    if importance is not None:
        counts = np.bincount(codes, np.broadcast_to(importance, numbers.shape).reshape(-1), _CODES)
    if ignore_zeros and counts.sum() > counts[0] + counts[0x8000]:
        counts[0] = counts[0x8000] = 0  # both zeros
    present, values, weights = _find_distinct(counts)
    centres = _find_best_centres(values, weights, 1 << bits)
    table, nearest = np.zeros(1 << bits, numbers.dtype), np.zeros(_CODES, np.uint8)
    table[: len(centres)] = centres
    nearest[present] = _find_nearest(values, centres)
    return table, _look_up(nearest, codes)


def _count_codes(codes: np.ndarray) -> np.ndarray:
    """Count each code piece by piece, because numpy would make eight bytes of each number."""
    counts = np.zeros(_CODES, np.int64)
    for start in range(0, codes.size, PIECE):
        counts += np.bincount(codes[start : start + PIECE], minlength=_CODES)
    return counts


def find_centres(numbers: np.ndarray, widths: Iterable[int]) -> dict[int, np.ndarray]:
    """Return for each width the sorted palette that `kmeans` finds, in fp64. The numbers are counted and sorted once."""
    _, values, weights = _find_distinct(_count_codes(to_codes(numbers)))
    return {bits: _find_best_centres(values, weights, 1 << bits) for bits in widths}


def round_to_centres(numbers: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the nearest of the sorted centres for each number, in the shape and dtype of the numbers."""
    nearest = centres.astype(numbers.dtype)[_find_nearest(_VALUES.astype(np.float64), centres)]
    return _look_up(nearest, to_codes(numbers)).reshape(numbers.shape)


def _look_up(table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return `table[codes]` piece by piece, because numpy would make eight bytes of each code."""
    found = np.empty(codes.size, table.dtype)
    for start in range(0, codes.size, PIECE):
        found[start : start + PIECE] = table[codes[start : start + PIECE]]
    return found


def to_codes(numbers: np.ndarray) -> np.ndarray:
    """Return the fp16 bits of each number: uint16, flat."""
    return np.ascontiguousarray(numbers, dtype=np.float16).reshape(-1).view(np.uint16)


def _find_distinct(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the codes that occur, sorted by value, with their values and weights."""
    present = np.flatnonzero(counts)
    present = present[np.argsort(_VALUES[present].astype(np.float64), kind="stable")]
    return present, _VALUES[present].astype(np.float64), counts[present].astype(np.float64)


def _find_best_centres(values: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    centres = values
    if len(values) > count:
        centres = _solve_exactly(*_merge_points(values, weights, max(_MOST_POINTS * count, _LEAST_POINTS)), count)
    return _polish_centres(values, weights, centres)


def _merge_points(values: np.ndarray, weights: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Merge sorted values into at most `most` points (means, masses).

    They are as dense as a good quantizer's levels, the cube root of the density (Panter and Dite, Proc. IRE 39, 1951).
    """
    if len(values) <= most:
        return values, weights
    gaps = np.diff(values, append=2 * values[-1] - values[-2])
    along = np.cumsum(np.cbrt(weights) * np.cbrt(gaps) ** 2)
    place = np.minimum((along / along[-1] * most).astype(np.int64), most - 1)
    mass = np.bincount(place, weights, most)
    sums = np.bincount(place, weights * values, most)
    return (sums / np.maximum(mass, 1e-300))[mass > 0], mass[mass > 0]


def _solve_exactly(points: np.ndarray, mass: np.ndarray, count: int) -> np.ndarray:
    """Return the optimal centres of sorted weighted points, by coremltools' C code. Its Python wrapper would hold the GIL."""
    from coremltools._deps.kmeans1d import core

    points, mass = np.ascontiguousarray(points, np.float64), np.ascontiguousarray(mass, np.float64)
    count = min(count, len(points))
    owner, centres = np.empty(len(points), np.uint64), np.empty(count, np.float64)

    def pointer(array: np.ndarray, kind: type) -> object:
        return array.ctypes.data_as(ctypes.POINTER(kind))

    double, ulong = ctypes.c_double, ctypes.c_ulong
    core._DLL.cluster_with_weights(
        pointer(points, double), pointer(mass, double), ulong(len(points)), ulong(count), pointer(owner, ulong),
        pointer(centres, double),
    )  # fmt: skip
    return centres


def _polish_centres(values: np.ndarray, weights: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Improve the centres by Lloyd's steps over all values, as `_merge_points` has lost some accuracy."""
    for _ in range(_POLISH if len(values) > len(centres) else 0):
        owner = _find_nearest(values, centres)
        mass = np.bincount(owner, weights, len(centres))
        means = np.bincount(owner, weights * values, len(centres)) / np.maximum(mass, 1e-300)
        centres = np.where(mass > 0, means, centres)
    return centres


def _find_nearest(values: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return np.searchsorted((centres[1:] + centres[:-1]) / 2, values)


class Palettes:
    """Lookup-table functions for coremltools whose tables are computed on all cores in advance, for at most `most`
    numbers.

    A request for another group than the next announced one is computed at once: slower, with the same result.
    """

    def __init__(self, most: int = 0) -> None:
        self._pool = ThreadPoolExecutor(os.cpu_count())
        self._coming: Iterator[Group] = iter(())
        self._ahead: deque[tuple[int, Future[tuple[Key, Palette]]]] = deque()
        self._next: Group | None = None
        self._most, self.late = most, 0

    def prepare(self, groups: Iterable[Group], most: int) -> None:
        """Announce the groups (arguments of `kmeans`) in the order of requests. The C code releases the GIL."""
        self._coming, self._most = iter(groups), most
        self._next = next(self._coming, None)

    def function(self, bits: int, ignore_zeros: bool) -> Callable[[np.ndarray], Palette]:
        def look_up(numbers: np.ndarray) -> Palette:
            self._go_ahead()
            if self._ahead:
                key, palette = self._ahead[0][1].result()
                if key == _make_key(numbers, bits, ignore_zeros):
                    self._ahead.popleft()
                    return palette
            self.late += 1
            return kmeans(numbers, bits, ignore_zeros)

        return look_up

    def _go_ahead(self) -> None:
        while (group := self._next) is not None:
            size = group[0].size
            if self._ahead and sum(taken for taken, _ in self._ahead) + size > self._most:
                return
            self._ahead.append((size, self._pool.submit(lambda one: (_make_key(*one[:3]), kmeans(*one)), group)))
            self._next = next(self._coming, None)


def _make_key(numbers: np.ndarray, bits: int, ignore_zeros: bool) -> Key:
    return hashlib.blake2b(np.ascontiguousarray(numbers).data, digest_size=16).digest(), bits, ignore_zeros

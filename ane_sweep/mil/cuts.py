"""Choose among the legal cuts of a line of ops, by names and numbers only, without files.

The quantity to balance (`by`) is bytes of weights, layers (ops that multiply matrices), or an estimated time for each
op.

The best cuts make the largest chunk as small as possible (or within 5 % of an equal share) and the other chunks close
to an equal share (again within 5 %); then they have the fewest boundary bytes, then the most even chunks, then the
earliest positions. The same program always gets the same cuts.

If embedding or head become a separate chunk, it is cut off at the legal place where fewest bytes cross, and among equal
places where the chunk is smallest: the embedding is every lookup in a table of weights ahead of the first layer; the
head is the layers with weights from which no other layer follows (the projection onto the vocabulary, also if several
share it).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from ane_sweep.mil.line import OpLine

Keys = frozenset[Hashable]  # of weights (file, offset), or places of ops
SLACK = 0.05  # of the ideal share: this much imbalance is accepted for fewer boundary bytes
LAYERS = {"conv", "conv_transpose", "linear", "matmul", "scaled_dot_product_attention"}
TINY_BYTES_PER_OP = 256  # below this the weights say nothing about where the work is: chunks are balanced by op count


_LOOKUPS = {"gather", "gather_along_axis", "gather_nd", "embedding"}


@dataclass(frozen=True)
class Wish:
    """Constraints on how a line is cut.

    by           balanced quantity: "bytes", "layers" or "time"
    times        by="time": estimated cost by the first value that an op makes; any unit
    first, last  required cuts: the end of the first chunk, and the start of the last one (a separate embedding or head)
    limit        by="bytes": no chunk is larger than this if that is possible
    """

    by: str = "bytes"
    times: Mapping[str, float] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None
    limit: int | None = None

    @property
    def own(self) -> int:
        """Return the number of chunks that `first` and `last` fix."""
        return (self.first is not None) + (self.last is not None)


DEFAULT = Wish()


def count_most(line: OpLine, wish: Wish = DEFAULT) -> int:
    """Return the largest number of chunks that a line can be cut into."""
    return len(_free_places(line, wish)) + 1 + wish.own


def choose(line: OpLine, count: int, wish: Wish = DEFAULT) -> list[int]:
    """Return the best `count` - 1 cuts, ascending. `count` is more than `wish.own` and at most `count_most(line, wish)`."""
    inner, between = _free_places(line, wish), count - wish.own
    start, end = wish.first or 0, len(line.compute) if wish.last is None else wish.last
    if between == 1:
        chosen = []
    elif between == len(inner) + 1:
        chosen = inner
    else:
        chosen = _choose_best(line, [start, *inner, end], between, wish)
    return [*([] if wish.first is None else [wish.first]), *chosen, *([] if wish.last is None else [wish.last])]


def choose_fewest(line: OpLine, limit: int, wish: Wish = DEFAULT) -> list[int] | None:
    """Return the cuts of the fewest chunks that each hold at most `limit` bytes of weights; None if that is impossible."""
    marks = sorted({*_free_places(line, wish), *(place for place in (wish.first, wish.last) if place is not None)})
    if max(weight_bytes(line, marks)) > limit:
        return None
    count = max(1 + wish.own, -(-sum(line.sizes.values()) // limit))
    while True:
        chosen = choose(line, min(count, count_most(line, wish)), replace(wish, limit=limit))
        if max(weight_bytes(line, chosen)) <= limit:
            return chosen
        count += 1


def weight_bytes(line: OpLine, chosen: Sequence[int]) -> list[int]:
    """Return the bytes of the distinct weights of each chunk."""
    edges = [0, *chosen, len(line.compute)]
    return [sum(line.sizes[key] for key in frozenset().union(*line.blobs[start:end])) for start, end in pairwise(edges)]


def _free_places(line: OpLine, wish: Wish) -> list[int]:
    end = len(line.compute) if wish.last is None else wish.last
    return [place for place in line.positions if (wish.first or 0) < place < end]


def _choose_best(line: OpLine, marks: list[int], count: int, wish: Wish) -> list[int]:
    uses, sizes = _costs(line, wish)
    segments = [frozenset().union(*uses[start:end]) for start, end in pairwise(marks)]  # used between two marks
    least = _least_bound(segments, sizes, count)
    share = _target_share(segments, sizes, count, least)
    everything = sum(sizes[key] for key in frozenset().union(*segments))
    bound = max(least, int(everything / count * (1 + SLACK)))
    if wish.limit is not None and uses is line.blobs:
        bound = max(least, min(bound, wish.limit))
    crossing = [0, *(line.crossing[place] for place in marks[1:-1]), 0]
    return [marks[mark] for mark in _best_marks(segments, sizes, crossing, count, bound, share)]


def _costs(line: OpLine, wish: Wish) -> tuple[Sequence[Keys], Mapping[Hashable, int]]:
    """Return the items that each op uses, and the cost of each item.

    Items are weights by bytes (or, if those are tiny, each op as 1), each layer as 1, or each op's time in millionths.
    """
    if wish.by == "bytes" and sum(line.sizes.values()) >= TINY_BYTES_PER_OP * len(line.compute):
        return line.blobs, dict(line.sizes.items())
    places = range(len(line.compute))
    costs: dict[Hashable, int] = dict.fromkeys(places, 1)
    if wish.by == "layers" and any(op.type in LAYERS for op in line.compute):
        costs = {place: int(op.type in LAYERS) for place, op in enumerate(line.compute)}
    elif wish.by == "time" and (total := sum(wish.times.values())):
        costs = {place: round(1e6 * wish.times.get(op.outputs[0], 0) / total) for place, op in enumerate(line.compute)}
    return [frozenset([place]) for place in places], costs


def _least_bound(segments: Sequence[Keys], sizes: Mapping[Hashable, int], count: int) -> int:
    """Return the smallest possible size of the largest of `count` chunks, by bisection.

    Filling each chunk as far as possible is optimal, because a chunk's size only grows with its ops.
    """
    low = max(sum(sizes[key] for key in keys) for keys in segments)
    high = max(low, sum(sizes.values()))
    while low < high:
        middle = (low + high) // 2
        if _chunks_needed(segments, sizes, middle) <= count:
            high = middle
        else:
            low = middle + 1
    return low


def _chunks_needed(segments: Sequence[Keys], sizes: Mapping[Hashable, int], bound: int) -> int:
    held: set[Hashable] = set()
    count, total = 1, 0
    for keys in segments:
        extra = sum(sizes[key] for key in keys if key not in held)
        if total + extra > bound:
            count, held, total = count + 1, set(keys), sum(sizes[key] for key in keys)
        else:
            held |= keys
            total += extra
    return count


def _target_share(segments: Sequence[Keys], sizes: Mapping[Hashable, int], count: int, least: int) -> float:
    """Return the size that chunks should have: `least`, or an equal share of what remains without oversized segments.

    Single segments larger than an equal share (a vocabulary table, say) fill chunks of their own; the others share the rest.
    """
    totals = [sum(sizes[key] for key in keys) for keys in segments]
    giants: set[int] = set()
    while len(giants) < count:
        taken = frozenset().union(*(segments[index] for index in giants))
        rest = sum(sizes[key] for key in frozenset().union(*segments) - taken)
        share = rest / (count - len(giants))
        more = {index for index, total in enumerate(totals) if total > share} - giants
        if not more:
            return max(1.0, share if giants else least)
        giants |= more
    return max(1.0, least)


def _best_marks(
    segments: Sequence[Keys], sizes: Mapping[Hashable, int], crossing: list[int], count: int, bound: int, share: float
) -> list[int]:
    """Return the best marks (cut positions), by a dynamic programme over (mark, number of chunks up to there).

    It keeps three things small, in this order: how far chunks exceed their share (in steps of SLACK, squared), boundary
    bytes, and the sum of squared sizes.
    """
    places = len(segments) + 1
    worst = np.iinfo(np.int64).max // 4
    over = np.full((count + 1, places), worst, dtype=np.int64)
    cost = np.zeros((count + 1, places), dtype=np.int64)
    uneven = np.zeros((count + 1, places))
    back = np.zeros((count + 1, places), dtype=np.int32)
    over[0, 0] = 0
    size = np.zeros(places)  # size[i] of a chunk from mark i to the mark at hand
    last_use: dict[Hashable, int] = {}
    for end in range(1, places):
        for key in segments[end - 1]:
            size[last_use.get(key, -1) + 1 : end] += sizes[key]
            last_use[key] = end - 1
        low = int(np.count_nonzero(size[:end] > bound))  # sizes fall with i
        own = size[low:end] / share
        own_over = np.ceil(np.maximum(0, own - 1 - SLACK) / SLACK - 1e-9).astype(np.int64) ** 2
        for chunk in range(1, min(count, end) + 1):
            first = over[chunk - 1, low:end] + own_over
            best = first.min()
            if best >= worst:
                continue
            second = np.where(first == best, cost[chunk - 1, low:end], worst)
            third = np.where(second == second.min(), uneven[chunk - 1, low:end] + own**2, np.inf)
            pick = int(third.argmin())
            back[chunk, end] = low + pick
            over[chunk, end], uneven[chunk, end] = best, third[pick]
            cost[chunk, end] = second[pick] + crossing[end]
    chosen, end = [], places - 1
    for chunk in range(count, 1, -1):
        end = int(back[chunk, end])
        chosen.append(end)
    return chosen[::-1]


def find_embedding_end(line: OpLine) -> int | None:
    """Return the cut after the embedding, or None if there is no lookup or no legal cut after it."""
    layers = [place for place, op in enumerate(line.compute) if op.type in LAYERS]
    first_layer = layers[0] if layers else len(line.compute)
    lookups = [place for place in range(first_layer) if line.compute[place].type in _LOOKUPS and line.blobs[place]]
    if not lookups:
        return None
    between = [place for place in line.positions if lookups[-1] < place <= first_layer]
    return min(between, key=lambda place: (line.crossing[place], place), default=None)


def find_head_start(line: OpLine) -> int | None:
    """Return the cut before the head, or None if there is no last layer with weights or no legal cut before it."""
    last = set(_find_last_layers(line))
    others = [place for place, op in enumerate(line.compute) if op.type in LAYERS and place not in last]
    heads = [place for place in last if line.blobs[place]]
    after = max(others, default=-1)
    if not heads or min(heads) <= after:
        return None
    between = [place for place in line.positions if max(after, 0) < place <= min(heads)]
    return min(between, key=lambda place: (line.crossing[place], -place), default=None)


def _find_last_layers(line: OpLine) -> list[int]:
    """Return the places of the layers from which no other layer follows, also not by way of a state."""
    leads_to_layer: set[str] = set()
    found = []
    for place in range(len(line.compute) - 1, -1, -1):
        op = line.compute[place]
        leads = not leads_to_layer.isdisjoint(op.reads if op.type == "write_state" else op.outputs)
        if op.type in LAYERS and not leads:
            found.append(place)
        if op.type in LAYERS or leads:
            leads_to_layer |= line.reads[place]
    return found

"""Where a program can be cut, and where it is best cut: names and numbers only, no files.

The ops that compute (those that depend on an input) stand in a line; a cut goes between two of them. Constants, and
ops that depend on constants alone, belong to whatever uses them and are no part of the line.

    boundary   the values made before a cut and used after it: the tensors that one chunk hands to later ones
    legal      every boundary value is a feature that Core ML takes: fp16, fp32 or int32, static shape, rank 1 to 5
    size       bytes of the distinct weights that a chunk's ops use; a weight used on both sides counts on both sides

Best: the largest chunk as small as possible (or within 5 % of an equal share), the others as near to their share (again
within 5 %), then the fewest boundary bytes, then the most even chunks, then the earliest cuts. Same program, same cuts.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ane_sweep.mil.graph import Op, Program, TensorType, blob_values

BOUNDARY_DTYPES = ("fp16", "fp32", "int32")
BOUNDARY_RANKS = range(1, 6)
FP16_FEATURES_VERSION = 7  # specification version of iOS16
SLACK = 0.05  # of the ideal share: this much imbalance is accepted for fewer boundary bytes
TINY_BYTES_PER_OP = 256  # below this the weights say nothing about where the work is: chunks are balanced by op count
_STATEFUL = ("read_state", "write_state", "make_list", "list_write", "list_scatter")


@dataclass
class Line:
    """A program as a line of computing ops, ready to be cut.

    compute    the ops of the line, in order
    constant   value name -> op, for ops that depend on constants alone
    reads      per op of the line, the names it reads (constants included)
    blobs      per op of the line, the keys (file, offset) of the weights it uses, directly or through constants
    sizes      bytes by weight key
    positions  legal cuts: p cuts before compute[p]
    crossing   boundary bytes by position, for the legal ones
    """

    program: Program
    compute: list[Op]
    constant: dict[str, Op]
    reads: list[set[str]]
    blobs: list[frozenset[tuple[str, int]]]
    sizes: dict[tuple[str, int], int]
    positions: list[int]
    crossing: dict[int, int]


def line_up(program: Program) -> Line:
    """Sort a program's ops into computing ones and constants, and find the legal cuts."""
    compute, constant = split(program)
    reads = [op.reads for op in compute]
    sizes: dict[tuple[str, int], int] = {}
    below: dict[str, frozenset[tuple[str, int]]] = {}
    for op in dict.fromkeys(op.index for op in constant.values()):
        view = program.ops[op]
        keys = _keys(view, program, sizes).union(*(below.get(name, frozenset()) for name in view.reads))
        below.update((name, keys) for name in view.outputs)
    nothing: frozenset[tuple[str, int]] = frozenset()
    blobs = [
        _keys(op, program, sizes).union(*(below.get(name, nothing) for name in names))
        for op, names in zip(compute, reads)
    ]
    line = Line(program, compute, constant, reads, blobs, sizes, [], {})
    _find_positions(line)
    return line


def split(program: Program) -> tuple[list[Op], dict[str, Op]]:
    """The computing ops in order (without those that nothing needs), and the constant ones by the value they make."""
    constant: dict[str, Op] = {}
    rest = []
    for op in program.ops:
        if _is_constant(op, constant):
            constant.update((name, op) for name in op.outputs)
        else:
            rest.append(op)
    needed = set(program.outputs)
    kept = []
    for op in reversed(rest):
        if op.type in _STATEFUL or not needed.isdisjoint(op.outputs):
            needed |= op.reads
            kept.append(op)
    return kept[::-1], constant


def _is_constant(op: Op, constant: dict[str, Op]) -> bool:
    if op.type == "const" or op.type.startswith("constexpr_"):
        return True
    if op.type.startswith("random_") or op.type in _STATEFUL:
        return False
    return all(name in constant for name in op.reads)


def _keys(op: Op, program: Program, sizes: dict[tuple[str, int], int]) -> frozenset[tuple[str, int]]:
    keys = set()
    for value in blob_values(op.proto):
        key = (value.blobFileValue.fileName, value.blobFileValue.offset)
        if key not in sizes:
            sizes[key] = program.package.blobs(key[0]).record(key[1]).size
        keys.add(key)
    return frozenset(keys)


def _find_positions(line: Line) -> None:
    """Fill `positions` and `crossing`: one walk with the set of values that are alive."""
    program = line.program
    last_use: dict[str, int] = {}
    first_state_use: dict[str, int] = {}
    states = {name for name in program.inputs if program.tensor_type(name) is None}
    for place, names in enumerate(line.reads):
        for name in names:
            last_use[name] = place
            if name in states:
                first_state_use.setdefault(name, place)
    starts = [0] * (len(line.compute) + 1)
    for name, first in first_state_use.items():  # a state lives in one chunk: no cut between its uses
        starts[first + 1] += 1
        starts[last_use[name] + 1] -= 1
    alive_bytes = illegal = held = 0
    ends: list[list[tuple[int, bool]]] = [[] for _ in range(len(line.compute) + 1)]
    for place in range(1, len(line.compute)):
        for name in line.compute[place - 1].outputs:
            if last_use.get(name, -1) >= place:
                size, legal = _feature(program, name)
                alive_bytes += size
                illegal += not legal
                ends[last_use[name] + 1].append((size, legal))
        for size, legal in ends[place]:
            alive_bytes -= size
            illegal -= not legal
        held += starts[place]
        if not illegal and not held:
            line.positions.append(place)
            line.crossing[place] = alive_bytes


def _feature(program: Program, name: str) -> tuple[int, bool]:
    """Bytes of a value, and whether Core ML takes it as an input or output."""
    kind = program.tensor_type(name)
    if kind is None or not kind.is_static:
        return 0, False
    legal = kind.dtype in BOUNDARY_DTYPES and len(kind.shape) in BOUNDARY_RANKS
    return kind.byte_count * (2 if needs_cast(program, kind) else 1), legal


def needs_cast(program: Program, kind: TensorType) -> bool:
    """Whether a boundary value travels as fp32: fp16 features came with iOS16. The way there and back is exact."""
    return kind.dtype == "fp16" and program.spec.specificationVersion < FP16_FEATURES_VERSION


def choose(line: Line, count: int) -> list[int]:
    """The best `count` - 1 cuts, ascending. There must be that many legal ones."""
    if count == 1:
        return []
    if count == len(line.positions) + 1:
        return list(line.positions)
    uses, sizes = _costs(line)
    marks = [0, *line.positions, len(line.compute)]
    segments = _segments(uses, marks)
    least = _least_bound(segments, sizes, count)
    share = _share(segments, sizes, count, least)
    everything = sum(sizes[key] for key in frozenset().union(*segments))
    bound = max(least, int(everything / count * (1 + SLACK)))
    crossing = [0, *(line.crossing[place] for place in line.positions), 0]
    return [marks[mark] for mark in _best_marks(segments, sizes, crossing, count, bound, share)]


def _costs(line: Line) -> tuple[list[frozenset], dict]:
    """What each op of the line uses and what that costs: weights by bytes, or (if those are tiny) each op as 1."""
    if sum(line.sizes.values()) >= TINY_BYTES_PER_OP * len(line.compute):
        return line.blobs, line.sizes
    places = range(len(line.compute))
    return [frozenset([place]) for place in places], dict.fromkeys(places, 1)


def _segments(uses: list[frozenset], marks: list[int]) -> list[frozenset]:
    """What is used between one mark and the next."""
    return [frozenset().union(*uses[start:end]) for start, end in pairwise(marks)]


def _least_bound(segments: list[frozenset], sizes: dict, count: int) -> int:
    """The smallest possible size of the largest of `count` chunks, by bisection: taking as much as fits is optimal,
    because a chunk's size only grows with its ops."""
    low = max(sum(sizes[key] for key in keys) for keys in segments)
    high = max(low, sum(sizes.values()))
    while low < high:
        middle = (low + high) // 2
        if _chunks_needed(segments, sizes, middle) <= count:
            high = middle
        else:
            low = middle + 1
    return low


def _chunks_needed(segments: list[frozenset], sizes: dict, bound: int) -> int:
    count, held, total = 1, set(), 0
    for keys in segments:
        extra = sum(sizes[key] for key in keys if key not in held)
        if total + extra > bound:
            count, held, total = count + 1, set(keys), sum(sizes[key] for key in keys)
        else:
            held |= keys
            total += extra
    return count


def _share(segments: list[frozenset], sizes: dict, count: int, least: int) -> float:
    """The size that chunks should have: `least`, but where single segments are larger than an equal share (a vocabulary
    table, say) these fill chunks of their own and the others share the rest."""
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
    segments: list[frozenset], sizes: dict, crossing: list[int], count: int, bound: int, share: float
) -> list[int]:
    """Dynamic programme over (mark, number of chunks up to there), with three things to keep small, in this order:
    how far chunks exceed their share (in steps of SLACK, squared), boundary bytes, and the sum of squared sizes."""
    places = len(segments) + 1
    worst = np.iinfo(np.int64).max // 4
    over = np.full((count + 1, places), worst, dtype=np.int64)
    cost = np.zeros((count + 1, places), dtype=np.int64)
    uneven = np.zeros((count + 1, places))
    back = np.zeros((count + 1, places), dtype=np.int32)
    over[0, 0] = 0
    size = np.zeros(places)  # size[i] of a chunk from mark i to the mark at hand
    last_use: dict = {}
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

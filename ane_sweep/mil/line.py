"""Put a program's computing ops into a line and find where it can be cut: names and numbers only, no files.

The ops that compute (those that depend on an input) stand in a line; a cut goes between two of them. Constants, and ops
that depend on constants alone, are not in the line: they go to every chunk that uses them.

    boundary   the values made before a cut and used after it: the tensors that one chunk hands to later ones
    legal      every boundary value can be a feature that Core ML takes: fp16, fp32 or int32, rank 1 to 5, or a value
               that one of those types holds exactly (CARRIERS: a bool, a small integer), whose shape is fixed or follows from the
    inputs' shapes (Program.varying); and no state is used on both sides
    size       bytes of the distinct weights that a chunk's ops use; a weight used on both sides counts on both sides
"""

from dataclasses import dataclass

from ane_sweep.errors import PackageError
from ane_sweep.mil.element_types import TensorType
from ane_sweep.mil.graph import Op, Program, check_sizes
from ane_sweep.mil.weights import blob_key, blob_values

BOUNDARY_RANKS = range(1, 6)
_FP16, _INT8 = ("fp16", 7), ("int8", 10)  # features since specification versions 7 (iOS16) and 10 (iOS26)
# types in which a value may travel, narrowest first: (type of the feature, specification version from which it is one)
CARRIERS = {
    "fp32": (("fp32", 0),),
    "int32": (("int32", 0),),
    "fp16": (_FP16, ("fp32", 0)),
    "bool": (_INT8, _FP16, ("fp32", 0)),
    "int8": (_INT8, _FP16),
    "uint8": (_FP16,),
    "int16": (("int32", 0),),
    "uint16": (("int32", 0),),
}
_STATEFUL = ("read_state", "write_state", "make_list", "list_write", "list_scatter")


@dataclass
class OpLine:
    """A program as a line of computing ops, ready to be cut.

    compute    the ops of the line, in order
    constant   value name -> op, for ops that depend on constants alone
    reads      per op of the line, the names it reads (constants included)
    blobs      per op of the line, the keys (file, offset) of the weights it uses, directly or through constants
    sizes      bytes by weight key
    positions  legal cuts: p cuts before compute[p]
    crossing   boundary bytes by legal position
    largest    bytes of the largest weight that an op reads: a compressed one counts with its table and scale
    unsized    places that are illegal only because a size of a crossing value is unknown
    """

    program: Program
    compute: list[Op]
    constant: dict[str, Op]
    reads: list[set[str]]
    blobs: list[frozenset[tuple[str, int]]]
    sizes: dict[tuple[str, int], int]
    positions: list[int]
    crossing: dict[int, int]
    largest: int
    unsized: int = 0


def line_up(program: Program) -> OpLine:
    """Sort a program's ops into computing ones and constants, and find the legal cuts. Raises errors.PackageError."""
    check_sizes(program.block, program.package.path)
    compute, constant = split(program)
    reads = [op.reads for op in compute]
    if unknown := set(program.outputs).union(*reads) - program.types.keys():
        raise PackageError(f"{program.package.path}: no op makes {min(unknown)!r}, which is read; the file is damaged")
    sizes: dict[tuple[str, int], int] = {}
    below: dict[str, frozenset[tuple[str, int]]] = {}
    for op in dict.fromkeys(op.index for op in constant.values()):
        view = program.ops[op]
        keys = _find_weights(view, program, sizes).union(*(below.get(name, frozenset()) for name in view.reads))
        below.update((name, keys) for name in view.outputs)
    nothing: frozenset[tuple[str, int]] = frozenset()
    blobs = [
        _find_weights(op, program, sizes).union(*(below.get(name, nothing) for name in names))
        for op, names in zip(compute, reads)
    ]
    largest = max((sum(sizes[key] for key in below.get(name, nothing)) for names in reads for name in names), default=0)
    line = OpLine(program, compute, constant, reads, blobs, sizes, [], {}, largest)
    _find_positions(line)
    return line


def split(program: Program) -> tuple[list[Op], dict[str, Op]]:
    """Return the computing ops in order (without those that no output needs), and the constant ones by the value they make."""
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


def _find_weights(op: Op, program: Program, sizes: dict[tuple[str, int], int]) -> frozenset[tuple[str, int]]:
    keys = set()
    for value in blob_values(op.proto):
        key = blob_key(value)
        if key not in sizes:
            sizes[key] = program.package.blobs(key[0]).record(key[1]).size
        keys.add(key)
    return frozenset(keys)


def _find_positions(line: OpLine) -> None:
    """Fill `positions` and `crossing` in one pass that tracks the values still needed."""
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
    alive_bytes = illegal = unsized = held = 0
    ends: list[list[tuple[int, bool, bool]]] = [[] for _ in range(len(line.compute) + 1)]
    for place in range(1, len(line.compute)):
        for name in line.compute[place - 1].outputs:
            if last_use.get(name, -1) >= place:
                size, legal, sized = found = _describe_value(program, name)
                alive_bytes, illegal, unsized = alive_bytes + size, illegal + (not legal), unsized + (not sized)
                ends[last_use[name] + 1].append(found)
        for size, legal, sized in ends[place]:
            alive_bytes, illegal, unsized = alive_bytes - size, illegal - (not legal), unsized - (not sized)
        held += starts[place]
        if illegal or held:
            continue
        if unsized:
            line.unsized += 1
        else:
            line.positions.append(place)
            line.crossing[place] = alive_bytes


def _describe_value(program: Program, name: str) -> tuple[int, bool, bool]:
    """Return (bytes of a value as a feature, whether its type can be a feature, whether its sizes are known)."""
    kind = program.default_type(name)
    if kind is None:
        return 0, False, True
    dtype = carrier(program, kind)
    if dtype is None or len(kind.shape) not in BOUNDARY_RANKS:
        return 0, False, True
    return TensorType(dtype, kind.shape).byte_count, True, kind.is_static


def carrier(program: Program, kind: TensorType) -> str | None:
    """Return the narrowest feature type that holds a boundary value exactly, so that casting forth and back changes
    nothing.

    None if no feature type holds it.
    """
    version = program.spec.specificationVersion
    return next((dtype for dtype, since in CARRIERS.get(kind.dtype, ()) if version >= since), None)

"""Prove that a chain of chunks is the program that it was cut from: the same ops on the same values and weights.

A runtime that computes op by op and rounds each value to its declared type then gives the same bits for both. The proof
reads what was written, and uses nothing of how it was cut.
"""

from collections.abc import Sequence

from ane_sweep.mil import chain, line
from ane_sweep.mil.graph import Op, Program, view_program
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import MIL_pb2
from ane_sweep.mil.weights import blob_key, blob_values


def find_difference(whole: Package, chunks: Sequence[Package]) -> str | None:
    """Return what a chain of chunks does otherwise than the whole, as a clause, or None if it computes the same bits."""
    specs, weights = [chunk.spec for chunk in chunks], dict[tuple[object, ...], bool]()
    for name in sorted(whole.spec.mlProgram.functions):
        inputs, own_inputs = (chain.find_inputs(listed, name) for listed in (specs, [whole.spec]))
        outputs, own_outputs = (chain.find_outputs(listed, whole.path, name) for listed in (specs, [whole.spec]))
        if outputs != own_outputs or not inputs.items() <= own_inputs.items():
            return "its inputs or outputs are described otherwise"
        pieces = [view_program(chunk, name) for chunk in chunks]
        if found := _Walk(view_program(whole, name), weights).follow(pieces):
            return found
    return None


class _Walk:
    """A walk through the chunks of one function."""

    def __init__(self, program: Program, weights: dict[tuple[object, ...], bool]):
        self.program, self.weights = program, weights  # pairs of weights -> True if they are equal
        self.ops: dict[object, list[Op]] = {}  # by what they make
        for op in program.ops:
            self.ops.setdefault(tuple(op.outputs) or op.name, []).append(op)
        self.handed: dict[str, str] = {}  # what earlier chunks give -> the program's value that it holds
        self.seen: set[int] = set()

    def follow(self, pieces: Sequence[Program]) -> str | None:
        """Return the first difference, as a clause, or None."""
        program = self.program
        for number, piece in enumerate(pieces, 1):
            if piece.opset != program.opset or piece.spec.specificationVersion != program.spec.specificationVersion:
                return f"chunk {number} is for another OS"
            if found := self._enter(piece):
                return f"chunk {number}: {found}"
        states = [name for piece in pieces for name in piece.inputs if piece.tensor_type(name) is None]
        if len(states) != len(set(states)):
            return "a state is in two chunks"
        for op in program.ops:
            if not op.outputs and op.index not in self.seen:
                return f"{op} is in no chunk"
        missing = [name for name in program.outputs if self.handed.get(name) != name]
        return f"no chunk gives output `{missing[0]}`" if missing else None

    def _enter(self, piece: Program) -> str | None:
        known, texts, last = {}, dict[str, object](), -1
        for name in piece.inputs:
            value = name if name in self.program.inputs else self.handed.get(name)
            if value is None or not self._holds(piece, name, value):
                return f"it takes `{name}`, which no chunk before it gives in that type"
            known[name] = value
        for op in piece.ops:
            made = next((one for one in self.ops.get(tuple(op.outputs) or op.name, ()) if one.index > last), None)
            if made is not None and self._is_same(op, piece, made):
                if any(known.get(name) != name for name in op.reads):
                    return f"{op} reads what is not there"
                last = made.index
                self.seen.add(last)
                known |= {name: name for name in op.outputs}
            elif op.type == "const" and self.program.types.keys().isdisjoint(op.outputs):
                texts[op.outputs[0]] = piece.constant(op)
            elif not self._is_exact_cast(op, piece, known, texts):
                return f"{op} is not the program's"
        for name in piece.outputs:
            if name not in known:
                return f"it gives `{name}`, which it does not make"
            self.handed[name] = known[name]
        return None

    def _is_exact_cast(self, op: Op, piece: Program, known: dict[str, str], texts: dict[str, object]) -> bool:
        """Add what a cast makes to `known` if it is a value of the program, in a type that holds it."""
        if op.type != "cast" or len(op.outputs) != 1 or len(op.names("x")) != 1:
            return False
        (given,), (made,) = op.names("x"), op.outputs
        value, kind = known.get(given), piece.tensor_type(made)
        told = [texts.get(name) for name in op.names("dtype")]
        if value is None or kind is None or told != [kind.dtype] or not self._holds(piece, made, value):
            return False
        known[made] = value
        return True

    def _holds(self, piece: Program, name: str, value: str) -> bool:
        """Return True if `name` of a chunk has the type of a value of the program, or under another name one that holds it exactly."""
        if name == value:
            return piece.types[name] == self.program.types[value]
        kind, original = piece.tensor_type(name), self.program.tensor_type(value)
        if kind is None or original is None:
            return False
        carriers = [dtype for dtype, _ in line.CARRIERS.get(original.dtype, ())]
        return kind.dtype in carriers and kind.shape == original.shape

    def _is_same(self, op: Op, piece: Program, original: Op) -> bool:
        """Return True if two ops are the same, with the same bytes of weights."""
        copy, equal = MIL_pb2.Operation(), self.weights
        copy.CopyFrom(op.proto)
        here, there = list(blob_values(copy)), list(blob_values(original.proto))
        for value, wanted in zip(here, there):
            key = (piece.package.path, *blob_key(value), *blob_key(wanted))
            if key not in equal:
                equal[key] = _have_equal_bytes(piece.package, value, self.program.package, wanted)
            if not equal[key]:
                return False
            value.blobFileValue.CopyFrom(wanted.blobFileValue)
        mine, theirs = (one.SerializeToString(deterministic=True) for one in (copy, original.proto))
        return len(here) == len(there) and mine == theirs


def _have_equal_bytes(own: Package, value: MIL_pb2.Value, other: Package, wanted: MIL_pb2.Value) -> bool:
    (mine, at), (theirs, there) = blob_key(value), blob_key(wanted)
    first, second = own.blobs(mine), other.blobs(theirs)
    a, b = first.record(at), second.record(there)
    if (a.dtype, a.size, a.padding_bits) != (b.dtype, b.size, b.padding_bits):
        return False
    return all(x == y for x, y in zip(first.pieces(at), second.pieces(there), strict=True))

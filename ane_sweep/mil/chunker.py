"""Cut one ML Program into n that run in a chain and compute the same bits, and prove that they do (same.py).

No op that computes is repeated. Constants (and ops that depend on them alone) go to every chunk that uses them. A
chunk's inputs are the program's own inputs that it reads, then the values of earlier chunks that it reads; its outputs
are the program's own outputs that it makes, then the values that later chunks read. To run the chain, the caller keeps
all tensors by name and gives each chunk its inputs by name. A state lives in one chunk. Weights are streamed from file
to file and never parsed. Functions of one package are cut at the same places and share each chunk's weights.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ane_sweep.errors import ChunkError
from ane_sweep.mil import cuts, graph, joint, package, pipeline, places, same, writer
from ane_sweep.mil.cut_words import CutWord
from ane_sweep.mil.element_types import FlexibleShape
from ane_sweep.mil.graph import Op
from ane_sweep.mil.line import OpLine, line_up
from ane_sweep.mil.weights import blob_values
from ane_sweep.mil.writer import Chunk

AUTO = "auto"
UNEVEN = 1.5  # times an equal share: more than that in one chunk is worth a note
OWN = {"none": (), "embeddings": ("embeddings",), "head": ("head",), "both": ("embeddings", "head")}


@dataclass(frozen=True)
class ChunkRequest:
    """The options for cutting a program.

    count    how many chunks, or "auto": the fewest that keep each under `program_bytes` of weights
    by       balanced quantity: "bytes", "layers" or "time" (cuts.py)
    own      parts that become a separate chunk: "none", "embeddings", "head" or "both"; these chunks are among the
             `count`
    times    by="time": estimated cost by the first value that an op makes
    at       explicit places (places.py), in place of all options above
    program_bytes, mapped_bytes   limits of "auto": a chunk's weights, and those of all chunks together (None: no limit)
    varying  function of (package, function) that returns the sizes of values if the program takes several shapes.
             Without it, values without a fixed size cannot cross a cut
    """

    count: int | str
    by: str = "bytes"
    own: str = "none"
    times: Mapping[str, float] = field(default_factory=dict)
    at: tuple[CutWord, ...] = ()
    program_bytes: int | None = None
    mapped_bytes: int | None = None
    varying: Callable[[package.Package, str], Mapping[str, FlexibleShape]] | None = None


def chunk(source: Path, out: Path, request: ChunkRequest) -> dict[str, Any]:
    """Write `source` as packages `chunk_01.mlpackage` ... into `out` and return facts about the cut.

    In a pipeline, the only ML Program is cut, and the other models are left out. Facts: `chunks`, `chunk_bytes` (weight
    bytes of each), `boundary_bytes` (handed over at each cut, by all functions), `cut_points` (legal cuts),
    `largest_tensor_bytes` (some chunk holds it; a compressed weight counts with its table and scale), and if there are
    any `left_out` (kinds of models) and `notes` (sentences); for explicit cuts also `cut_behind`, the last op of each
    chunk. Raises errors.ChunkError if the program cannot be cut as requested, errors.PackageError if it cannot be read.
    """
    read, left_out = pipeline.find_program(package.read(source, kinds=pipeline.KINDS))
    default = graph.default_function(read.spec)
    names = sorted(read.spec.mlProgram.functions, key=lambda name: (name != default, name)) or [default]
    lines = {name: line_up(_view_program(read, name, request)) for name in names}
    joined = joint.join(list(lines.values()))
    if request.at:
        chosen, notes = places.resolve(joined.line, request.at, source.name)
    else:
        chosen = _choose_cuts(joined.line, request, source.name)
        notes = _describe_imbalance(joined.line, chosen)
    parts = {
        name: split_at(line, [joined.places[place][index] for place in chosen])
        for index, (name, line) in enumerate(lines.items())
    }
    for index in range(len(chosen) + 1):
        target = out / package.chunk_name(index)
        if not chosen:
            shutil.copytree(source, target, copy_function=package.link_or_copy)
        else:
            writer.write({name: (line.program, parts[name][index]) for name, line in lines.items()}, target)
    written = [package.read(path) for path in package.program_paths(out)] if chosen else []
    if written and (found := same.find_difference(read, written)):
        raise ChunkError(f"{source}: its chunks are not the program, a mistake of ours: {found}; please report it")
    return {
        "chunks": len(chosen) + 1,
        "chunk_bytes": cuts.weight_bytes(joined.line, chosen),
        "boundary_bytes": [joined.line.crossing[place] for place in chosen],
        "cut_points": len(joined.line.positions),
        **({"cut_behind": [places.name_cut(joined.line, cut) for cut in chosen]} if request.at else {}),
        "largest_tensor_bytes": joined.line.largest,
        **({"left_out": left_out} if left_out and chosen else {}),
        **({"notes": notes} if notes else {}),
    }


def extract_program(source: Path, target: Path) -> Path:
    """Write the only ML Program of a pipeline as a separate package and return `target`. Raises the same errors as `chunk`."""
    read, _ = pipeline.find_program(package.read(source, kinds=pipeline.KINDS))
    program = graph.view_program(read)
    (everything,) = split_at(line_up(program), [])
    writer.write({graph.default_function(read.spec): (program, everything)}, target)
    return target


def _view_program(read: package.Package, name: str, request: ChunkRequest) -> graph.Program:
    program = graph.view_program(read, name)
    kinds = (program.tensor_type(own) for own in program.inputs)
    if request.varying is not None and any(kind is not None and not kind.is_static for kind in kinds):
        program.varying = request.varying(read, name)
    return program


def _describe_imbalance(line: OpLine, chosen: list[int]) -> list[str]:
    """Return a sentence with the reason if the largest chunk is far larger than an equal share; else no sentence."""
    held, total = cuts.weight_bytes(line, chosen), sum(line.sizes.values())
    largest, share = max(held), total / len(held)
    if largest <= UNEVEN * share or total < cuts.TINY_BYTES_PER_OP * len(line.compute):
        return []
    why = "one tensor has" if line.largest > UNEVEN * share else "the ops between two cut points have"
    return [
        f"uneven: the largest of {len(held)} chunks has {largest} bytes of weights, {largest / share:.1f} times an equal share: "
        f"{why} that many, and a chunk ends at a cut point"
    ]


def _choose_cuts(line: OpLine, request: ChunkRequest, name: str) -> list[int]:
    wish = _make_wish(line, request, name)
    most = cuts.count_most(line, wish)
    if request.count == AUTO:
        return _choose_fewest(line, request, wish, name)
    count = int(request.count)
    if count < 1:
        raise ChunkError(f"chunks={count}: a program is cut into 1 or more chunks")
    if 1 < count <= wish.own:
        raise ChunkError(
            f"chunks={count}, own_chunks={request.own}: those are among the chunks, so {wish.own + 1} chunks or more"
        )
    if count > most:
        sizes = (
            f"; at {line.unsized} places a value crosses whose size does not follow from the shapes of the inputs. A chunk must "
            "declare its sizes: convert the model with one shape"
        ) * bool(line.unsized)
        if most == 1:
            raise ChunkError(f"chunks={count}: {name} has no place to cut it, so it stays one program{sizes}")
        raise ChunkError(
            f"chunks={count}: {name} has {len(line.positions)} cut points, so it makes at most {most} chunks; "
            f"ask for chunks={wish.own + 1} to {most}{sizes}"
        )
    return [] if count == 1 else cuts.choose(line, count, wish)


def _make_wish(line: OpLine, request: ChunkRequest, name: str) -> cuts.Wish:
    if request.count == 1:
        return cuts.Wish()
    wanted = OWN[request.own]
    first = cuts.find_embedding_end(line) if "embeddings" in wanted else None
    last = cuts.find_head_start(line) if "head" in wanted else None
    if "embeddings" in wanted and first is None:
        raise ChunkError(f"own_chunks={request.own}: {name} has no lookup ahead of its layers that could be cut off")
    if "head" in wanted and (last is None or (first is not None and last <= first)):
        raise ChunkError(f"own_chunks={request.own}: {name} has no projection at its end that could be cut off")
    return cuts.Wish(request.by, request.times, first, last)


def _choose_fewest(line: OpLine, request: ChunkRequest, wish: cuts.Wish, name: str) -> list[int]:
    assert request.program_bytes is not None
    chosen = cuts.choose_fewest(line, request.program_bytes, wish)
    if chosen is None:
        raise ChunkError(
            f"chunks=auto: {name} cannot be cut so that no chunk has more than {request.program_bytes} bytes of weights: "
            "a single tensor, or the ops between two cut points, have more; compress the weights, or give a number"
        )
    total = sum(cuts.weight_bytes(line, chosen)) + _unpacked_bytes(line)
    if request.mapped_bytes is not None and total > request.mapped_bytes:
        raise ChunkError(
            f"chunks=auto: {name} has {total} bytes of weights, above the {request.mapped_bytes} that can be mapped at "
            "once, however it is cut or compressed; take limits_for of a chip without that limit, or a number"
        )
    return chosen


def _unpacked_bytes(line: OpLine) -> int:
    """Return the bytes that compressed weights take in memory, uncompressed, beyond their size in the file.

    Chips with a limit map them dense (4-bit chunks fell to the CPU just like fp16 ones: more-ane-transformers notes,
    March and April 2023, M1 Max).
    """
    packed = {op.index: op for op in line.constant.values() if op.type.startswith("constexpr_")}
    feeding = {name for op in packed.values() for name in op.reads}
    stored = {op.index: op for op in line.constant.values() if op.index in packed or not feeding.isdisjoint(op.outputs)}
    values = [value.blobFileValue for op in stored.values() for value in blob_values(op.proto)]
    held = sum(line.sizes.get(key, 0) for key in {(value.fileName, value.offset) for value in values})
    made = [name for op in packed.values() for name in op.outputs if name not in feeding]
    kinds = [kind for name in made if (kind := line.program.tensor_type(name)) is not None]
    return sum(kind.byte_count for kind in kinds) - held


def split_at(line: OpLine, chosen: list[int]) -> list[Chunk]:
    """Return the chunks between the cuts at the positions `chosen`."""
    program = line.program
    edges = [0, *chosen, len(line.compute)]
    made = {name: place for place, op in enumerate(line.compute) for name in op.outputs}
    last_read = {name: place for place, names in enumerate(line.reads) for name in names if name in made}
    unread = set(program.inputs).difference(*line.reads) if line.reads else set(program.inputs)
    result: list[Chunk] = []
    for start, end in pairwise(edges):
        is_first, is_last = start == 0, end == len(line.compute)
        read: set[str] = set().union(*line.reads[start:end])
        if is_last:  # outputs that no computing op makes: constants, or inputs passed through
            read |= {name for name in program.outputs if name not in made}
        own = [name for op in line.compute[start:end] for name in op.outputs]
        wanted = read | (unread if is_first else set())
        inputs = [name for name in program.inputs if name in wanted]
        inputs += sorted((name for name in read if made.get(name, start) < start), key=lambda name: (made[name], name))
        outputs = [name for name in program.outputs if name in own or (is_last and name not in made)]
        outputs += [name for name in own if last_read.get(name, -1) >= end and name not in outputs]
        result.append(Chunk(_add_constants(line, start, end, read), inputs, outputs))
    return result


def _add_constants(line: OpLine, start: int, end: int, read: set[str]) -> list[Op]:
    """Return the ops of a chunk with all constants that they depend on, in the program's order."""
    needed: dict[int, Op] = {op.index: op for op in line.compute[start:end]}
    open_names = list(read)
    while open_names:
        op = line.constant.get(open_names.pop())
        if op is not None and op.index not in needed:
            needed[op.index] = op
            open_names += op.reads
    return [needed[index] for index in sorted(needed)]

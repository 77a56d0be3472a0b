"""Resolve the words of `cuts` (cut_words.py) to legal cuts of a program, or to an error with the nearest ones.

bytes, share   the cut with the nearest amount of distinct weights before it; among cuts whose amount differs from it by
               less than NEAR of all weights, the one where fewest bytes cross
layer:N        between the Nth layer and the next, where fewest bytes cross. Layers are numbered by the names of the
               weights: `h_0_ln_1_weight`, `encoder_layer_3_attention_...`
op:NAME        directly after the op of that name, or the op that makes the value of that name
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate

from ane_sweep.errors import ChunkError, suggestion
from ane_sweep.mil.cut_words import CutWord
from ane_sweep.mil.line import OpLine
from ane_sweep.mil.weights import blob_values

NEAR = 0.005  # of all weights: this much farther is accepted for fewer boundary bytes
FAR = 0.05  # of all weights: a cut that is farther from the request gets a note
_NUMBERED = re.compile(r"^(.*?[A-Za-z])_(\d+)_(.+)$")


def resolve(line: OpLine, words: Sequence[CutWord], name: str) -> tuple[list[int], list[str]]:
    """Return the cuts, ascending, and sentences about cuts that are far from the request. Raises errors.ChunkError."""
    if not line.positions:
        raise ChunkError(f"cuts: {name} has no place to cut it")
    held = count_bytes_ahead(line)
    found: dict[int, CutWord] = {}
    notes = []
    for word in words:
        cut = _KINDS[word.kind](line, word, name, held)
        if cut in found:
            raise ChunkError(
                f"cuts: {found[cut].word} and {word.word} of {name} come to one place, behind {name_cut(line, cut)}"
            )
        found[cut] = word
        wanted = word.number * held[-1] if word.kind == "share" else word.number
        if word.kind in ("bytes", "share") and abs(held[cut] - wanted) > FAR * held[-1]:
            notes.append(
                f"cuts: {word.word} came to {_format_size(held[cut])} of {_format_size(held[-1])}: no legal cut is nearer, as one "
                "tensor or the ops between two cut points have the rest"
            )
    return sorted(found), notes


def count_bytes_ahead(line: OpLine) -> list[int]:
    """Return, for each place, the bytes of the distinct weights that the ops before it use."""
    seen: set[tuple[str, int]] = set()
    more = [0]
    for keys in line.blobs:
        more.append(sum(line.sizes[key] for key in keys - seen))
        seen |= keys
    return list(accumulate(more))


def name_cut(line: OpLine, cut: int) -> str:
    """Return the word that requests this cut: `op:NAME`."""
    return f"op:{line.compute[cut - 1].name}"


def _cut_by_bytes(line: OpLine, word: CutWord, name: str, held: list[int]) -> int:
    wanted, total = word.number * held[-1] if word.kind == "share" else word.number, held[-1]
    if not total:
        raise ChunkError(f"cuts=[{word.word}]: {name} keeps no weights in a file to count; give op:NAME")
    if wanted >= total:
        raise ChunkError(f"cuts=[{word.word}]: {name} has {_format_size(total)} of weights; give less than that")
    nearest = min(abs(held[cut] - wanted) for cut in line.positions)
    close = [cut for cut in line.positions if abs(held[cut] - wanted) <= nearest + NEAR * total]
    return min(close, key=lambda cut: (line.crossing[cut], abs(held[cut] - wanted), -cut))


def _cut_by_layer(line: OpLine, word: CutWord, name: str, held: list[int]) -> int:
    number, spans = int(word.number), find_layers(line)
    if not spans:
        raise ChunkError(
            f"cuts=[{word.word}]: the names of the weights of {name} number no layers; give bytes as 1811MB, a share as 0.6, or "
            "op:NAME"
        )
    if number >= len(spans):
        raise ChunkError(f"cuts=[{word.word}]: {name} has {len(spans)} layers, so layer:1 to layer:{len(spans) - 1}")
    if (cut := _cut_between(line, spans, number)) is None:
        others = [other for other in range(1, len(spans)) if _cut_between(line, spans, other) is not None]
        near = sorted(sorted(others, key=lambda other: abs(other - number))[:2])
        way = " and ".join(f"layer:{other}" for other in near) or "none; give bytes, a share or op:NAME"
        raise ChunkError(
            f"cuts=[{word.word}]: {name} cannot be cut between layers {number} and {number + 1}; nearest: {way}"
        )
    return cut


def _cut_between(line: OpLine, spans: list[tuple[int, int]], number: int) -> int | None:
    """Return the cut after layer `number`; among equal ones the last, as the ops after a layer's last weight belong to it."""
    legal = [cut for cut in line.positions if spans[number - 1][1] < cut <= spans[number][0]]
    return min(legal, key=lambda cut: (line.crossing[cut], -cut), default=None)


def find_layers(line: OpLine) -> list[tuple[int, int]]:
    """Return (first op, last op) of each layer, found by the names of its weights in files, in the order they run."""
    groups: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    uses: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, names in enumerate(line.reads):
        for name in _find_constants(line, names):
            if (match := _NUMBERED.match(name)) and [*blob_values(line.constant[name].proto)]:
                groups[match[1]][int(match[2])].add(match[3])
                uses[match[1], int(match[2])].append(index)
    numbered = [
        (prefix, number)
        for prefix, numbers in groups.items()
        if len(numbers) > 1 and max(numbers) - min(numbers) == len(numbers) - 1 and min(map(len, numbers.values())) > 1
        for number in numbers
    ]
    return sorted((min(uses[one]), max(uses[one])) for one in numbered)


def _find_constants(line: OpLine, names: set[str]) -> set[str]:
    """Return the constants that an op reads, and the constants from which those are computed: the parts of a palette have other names."""
    found: set[str] = set()
    waiting = [name for name in names if name in line.constant]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [one for one in line.constant[name].reads if one in line.constant]
    return found


def _cut_by_op(line: OpLine, word: CutWord, name: str, held: list[int]) -> int:
    known = {text: place for place, op in enumerate(line.compute, 1) for text in (op.name, *op.outputs)}
    if (cut := known.get(word.name)) is None:
        others = {text for op in line.program.ops for text in (op.name, *op.outputs)}
        problem = "is a constant there, or leads to no output" if word.name in others else "is the name of no op there"
        ends = dict.fromkeys(name_cut(line, place) for place in (line.positions[0], line.positions[-1]))
        like = suggestion(word.name, known) or f"; legal cuts are {' to '.join(ends)}"
        raise ChunkError(f"cuts=[{word.word}]: {word.name} {problem}, in {name}{like}")
    if cut not in line.crossing:
        before = max((place for place in line.positions if place < cut), default=None)
        after = min((place for place in line.positions if place > cut), default=None)
        near = " and ".join(name_cut(line, place) for place in (before, after) if place is not None)
        why = "it is the last op" if cut == len(line.compute) else "a value crosses there that a program cannot take"
        raise ChunkError(f"cuts=[{word.word}]: {name} cannot be cut behind {word.name}: {why}; nearest: {near}")
    return cut


def _format_size(number: float) -> str:
    unit, divisor = ("GB", 1e9) if number >= 1e10 else ("MB", 1e6) if number >= 1e6 else ("kB", 1e3)
    return f"{number / divisor:.4g} {unit}"


_KINDS: dict[str, Callable[[OpLine, CutWord, str, list[int]], int]] = {
    "bytes": _cut_by_bytes, "share": _cut_by_bytes, "layer": _cut_by_layer, "op": _cut_by_op,
}  # fmt: skip

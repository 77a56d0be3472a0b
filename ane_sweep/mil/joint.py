"""Cut several functions of one package at the same places, so that chunk i of each uses the same weights.

Places of two functions count as the same if they divide the shared weights (and states) alike: the same ones are used
before, and the same ones after. A weight that the functions use a different number of times is ignored, for example a
table that every layer of one function adds and the other looks up once.
"""

from collections import Counter
from dataclasses import dataclass, replace

from ane_sweep.mil.line import OpLine

_Key = tuple[str, int | str]
_STATE = "state"


@dataclass
class Joint:
    """A line of ops that represents all functions of a package.

    `line` has the first function's ops with the weights of all of them; its positions are the cuts that exist in every
    function. `places[p]` lists cut p in each function.
    """

    line: OpLine
    places: dict[int, list[int]]


def join(lines: list[OpLine]) -> Joint:
    """Return one line that represents all functions of a package."""
    first, *others = lines
    if not others:
        return Joint(first, {place: [place] for place in first.positions})
    used = [_list_used(line) for line in lines]
    uses = [Counter(key for keys in one for key in keys) for one in used]  # number of ops that use each
    in_all = set.intersection(*(set(count) for count in uses))
    common = sorted((k for k in in_all if k[0] == _STATE or len({count[k] for count in uses}) == 1), key=str)
    bits = {key: 1 << index for index, key in enumerate(common)}
    tables = [_cuts_by_parting(line, keys, bits) for line, keys in zip(lines, used)]
    places = {
        place: [place, *(table[parting] for table in tables[1:])]
        for parting, place in tables[0].items()
        if all(parting in table for table in tables[1:])
    }
    positions = sorted(places)
    crossing = {at: sum(line.crossing[own] for line, own in zip(lines, places[at], strict=True)) for at in positions}
    blobs = [*first.blobs]
    for index, line in enumerate(others, 1):
        edges = [0, *(places[place][index] for place in positions), len(line.compute)]
        for start, end, place in zip(edges, edges[1:], [0, *positions], strict=False):
            blobs[place] = blobs[place].union(*line.blobs[start:end])
    sizes = {key: size for line in lines for key, size in line.sizes.items()}
    largest = max(line.largest for line in lines)
    whole = replace(first, positions=positions, crossing=crossing, blobs=blobs, sizes=sizes, largest=largest)
    return Joint(whole, places)


def _list_used(line: OpLine) -> list[set[_Key]]:
    """Return the weights and states that each op uses."""
    states = {name for name in line.program.inputs if line.program.tensor_type(name) is None}
    return [
        {*blobs, *((_STATE, name) for name in names & states)}
        for blobs, names in zip(line.blobs, line.reads, strict=True)
    ]


def _cuts_by_parting(line: OpLine, used: list[set[_Key]], bits: dict[_Key, int]) -> dict[tuple[int, int], int]:
    """Return the legal cuts by (bit mask of the items used before the cut, bit mask of those used after it).

    Of several cuts with equal masks, the one where fewest bytes cross is kept.
    """
    masks = [sum(bits.get(key, 0) for key in keys) for keys in used]
    after = [0] * (len(masks) + 1)
    for place in range(len(masks) - 1, -1, -1):
        after[place] = after[place + 1] | masks[place]
    before = 0
    found: dict[tuple[int, int], int] = {}
    legal = set(line.positions)
    for place, mask in enumerate(masks):
        if place in legal:
            known = found.setdefault((before, after[place]), place)
            if line.crossing[place] < line.crossing[known]:
                found[before, after[place]] = place
        before |= mask
    return found

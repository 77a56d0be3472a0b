"""Where a program's embedding ends and where its vocabulary head begins: the cuts that give each a chunk of its own.

    embedding   every lookup in a table of weights ahead of the first layer
    head        the layers (with weights) from which no other layer follows: the projection onto the vocabulary, also
                where several share it

Among the legal cuts that part them from the rest: the one where fewest bytes cross; of equals the smaller chunk.
"""

from ane_sweep.mil.cuts import LAYERS
from ane_sweep.mil.line import OpLine

_LOOKUPS = {"gather", "gather_along_axis", "gather_nd", "embedding"}


def find_embedding_end(line: OpLine) -> int | None:
    """The cut after the embedding; None where there is no lookup or no legal cut behind it."""
    layers = [place for place, op in enumerate(line.compute) if op.type in LAYERS]
    first_layer = layers[0] if layers else len(line.compute)
    lookups = [place for place in range(first_layer) if line.compute[place].type in _LOOKUPS and line.blobs[place]]
    if not lookups:
        return None
    between = [place for place in line.positions if lookups[-1] < place <= first_layer]
    return min(between, key=lambda place: (line.crossing[place], place), default=None)


def find_head_start(line: OpLine) -> int | None:
    """The cut before the head; None where no layer with weights is last, or no legal cut lies before it."""
    last = set(_find_last_layers(line))
    others = [place for place, op in enumerate(line.compute) if op.type in LAYERS and place not in last]
    heads = [place for place in last if line.blobs[place]]
    after = max(others, default=-1)
    if not heads or min(heads) <= after:
        return None
    between = [place for place in line.positions if max(after, 0) < place <= min(heads)]
    return min(between, key=lambda place: (line.crossing[place], -place), default=None)


def _find_last_layers(line: OpLine) -> list[int]:
    """Places of the layers from which no other layer follows."""
    leads_to_layer: set[str] = set()
    found = []
    for place in range(len(line.compute) - 1, -1, -1):
        op = line.compute[place]
        leads = not leads_to_layer.isdisjoint(op.outputs)
        if op.type in LAYERS and not leads:
            found.append(place)
        if op.type in LAYERS or leads:
            leads_to_layer |= line.reads[place]
    return found

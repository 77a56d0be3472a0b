"""The chunking of a cell: the parameters of its chunk task, impossible requests, and an estimate for `auto`.

The planner cannot know the program, so for `chunks=auto` the key contains the limits, the plan shows an estimate
(parameter bytes at the precision's bits), and the record's `realised.chunks` is the number that the chunker chose.
"""

import math
from collections.abc import Iterable

from ane_sweep.bridge import recipes
from ane_sweep.bridge.axes.cut import AUTO, OWN, span
from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.plan import Source
from ane_sweep.bridge.settings import PrecisionSettings
from ane_sweep.machine import host
from ane_sweep.mil import cut_words
from ane_sweep.placement import sizes

# coremltools' bisect_model holds the program three times (measured: 0.5 GB and 3.0 bytes for each of the package's): as much
# memory as a chunking of ten times the size.
BISECT_WORK = 10


Params = dict[str, object]  # of a task


def is_cut(cell: Cell) -> bool:
    """Return True if the cell has a chunk task; with chunks=auto that task may still make one chunk."""
    return cell.chunks != 1 or bool(cell.cuts)


def limits(cell: Cell) -> sizes.Limits:
    """Return the limits for `auto`: those of the chip `limits_for`, else of this host's chip, else of m1."""
    return sizes.limits_for(cell.limits_for or sizes.chip_of(host.chip()))


def params(cell: Cell) -> Params:
    """Return the chunk task's own parameters: everything that decides where the program is cut."""
    pipeline = "manual" if cell.pieces else cell.pipeline
    if cell.cuts:
        return {"count": len(cell.cuts) + 1, "cuts": cell.cuts, "by": "bytes", "own": "none", "pipeline": pipeline}
    found: Params = {"count": cell.chunks, "by": cell.chunk_by, "own": cell.own_chunks, "pipeline": pipeline}
    if cell.chunk_by == "time":
        found["chip"] = limits(cell).chip
    if cell.chunks == AUTO:
        allowed = limits(cell)
        found |= {"program_bytes": allowed.program_bytes, "mapped_bytes": allowed.mapped_bytes}
    return found


def pieces(cell: Cell) -> Params:
    """Return the parameters of the task that extracts some of the chunks."""
    first, last = span(cell.pieces or 1) or (1, 1)
    return {"first": first, "last": last, "pipeline": cell.pipeline}


def copies(cell: Cell) -> Params:
    """Return the parameters of copies in the timing's key; {} for one copy."""
    if cell.copies == 1:
        return {}
    sizes = {"sizes": cell.copies_sizes} if cell.copies_sizes else {}
    return {"copies": {"count": cell.copies, "kind": cell.copies_kind, "order": cell.copies_order, **sizes}}


def weight_bytes(precision: PrecisionSettings, source: Source) -> int:
    """Estimate the bytes of a program's weights: the parameters at the precision's bits."""
    recipe = recipes.canonical(precision.weights)
    bits = _dense_bits(precision) if recipe is None else recipes.average_bits(recipe)
    return int(source.parameter_bytes / 32 * bits)


def _dense_bits(precision: PrecisionSettings) -> int:
    return 16 if precision.compute == "fp16" else 32


def estimate(cell: Cell, source: Source) -> int:
    """Return the number of chunks that `auto` will probably choose."""
    wanted = max(1, math.ceil(weight_bytes(cell.precision_settings, source) / limits(cell).program_bytes))
    return max(wanted, OWN[cell.own_chunks] + 1)


def refusal(cell: Cell, source: Source) -> str | None:
    """Return the reason why a cell cannot be cut into so many chunks, with a remedy, or None if it can be tried."""
    most = source.cut_points + 1
    if cell.cuts:
        return _cuts_refusal(cell, source)
    if cell.chunks != AUTO:
        if int(cell.chunks) <= most:
            return None
        return (
            f"chunks={cell.chunks} is more than {cell.model} can be cut into: it has {source.cut_points} cut points "
            f"({source.layers} layers), so chunks=1..{most}"
        )
    allowed = limits(cell)
    mapped = source.parameter_bytes / 32 * _dense_bits(cell.precision_settings)  # compressed weights are mapped dense
    if allowed.mapped_bytes is not None and mapped > allowed.mapped_bytes:
        return (
            f"chunks=auto: the weights of {cell.model}, about {mapped / 1e9:.2f} GB when they are in use, are above the "
            f"{allowed.mapped_bytes / 1e9:.2f} GB that {allowed.chip} maps at once, however they are cut or compressed; "
            "use limits_for of a chip without that limit, or a number of chunks"
        )
    if estimate(cell, source) > most:
        return (
            f"chunks=auto: {cell.model} would need about {estimate(cell, source)} chunks for {allowed.chip} and has "
            f"{source.cut_points} cut points; use a precision with fewer bits, or limits_for of another chip"
        )
    return None


def _cuts_refusal(cell: Cell, source: Source) -> str | None:
    """Return the reason why a requested cut is beyond all weights or layers, or None.

    Tied weights may be stored twice, and the layers of a user's own model are not counted.
    """
    most, counted = 2 * weight_bytes(cell.precision_settings, source), not cell.model_settings.is_given
    layers = source.layers + int(source.arch.get("num_decoder_layers") or 0)
    for one in cut_words.parse_places(cell.cuts or []):
        if one.kind == "bytes" and one.number >= most:
            return (
                f"cuts: {one.word} is beyond the weights of {cell.model} at precision={cell.precision}, about {most / 2e6:.4g} MB; "
                "give less, or a share as 0.6"
            )
        if one.kind == "layer" and counted and one.number >= layers:
            way = f"layer:1 to layer:{layers - 1}" if layers > 1 else "bytes, a share or op:NAME"
            return f"cuts: {one.word} of {cell.model}, which has {layers} layers: a cut lies between two, so {way}"
    return None


def notes(pairs: Iterable[tuple[Cell, Source]]) -> list[str]:
    """Return a note with the expected number of chunks, once for each model, precision and chip."""
    found = []
    for cell, source in pairs:
        if cell.chunks != AUTO:
            continue
        allowed, expected = limits(cell), weight_bytes(cell.precision_settings, source)
        own = "" if cell.own_chunks == "none" else f" with own_chunks={cell.own_chunks}"
        found.append(
            f"chunks=auto: {cell.model} at precision={cell.precision}{own} will be about {estimate(cell, source)} "
            f"(estimated: {expected / 1e9:.2f} GB of weights, {allowed.program_bytes / 1e9:.2f} GB a program for "
            f"{allowed.chip}, margin of a tenth taken off); the record's realised.chunks is what it came to"
        )
    return list(dict.fromkeys(found))

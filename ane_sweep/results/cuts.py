"""The cost and the gain of cutting a cell's model into chunks, in a sentence, for the chip that the user ships for.

The cost is the estimate's own part for hand-overs between chunks. A gain is what an uncut program lacks: a place on the
Neural Engine below the limit on one program's weights, more ops there, or less time than the uncut cell of the sweep.
"""

from collections.abc import Sequence
from dataclasses import fields

from ane_sweep import terminal
from ane_sweep.bridge.axes.cut import Cut
from ane_sweep.bridge.record import Record
from ane_sweep.bridge.runtimes import traits
from ane_sweep.placement import chips, sizes
from ane_sweep.placement.types import Placement
from ane_sweep.results.headline import Latency, headline, shipped_placement

_CUT = {"chunks", *(field.name for field in fields(Cut))} - {"pieces"}  # pieces are a part of the model


def explain_cuts(records: Sequence[Record]) -> list[str | None]:
    """Return the sentence of `explain_cut` for each cell, beside the cell with the same request in one piece."""
    uncut = {_name_request(one): one for one in records if _count(one) == 1 and shipped_placement(one)}
    return [explain_cut(record, uncut.get(_name_request(record))) for record in records]


def _name_request(record: Record) -> str:
    return repr({name: value for name, value in record.cell.items() if name not in _CUT})


def _count(record: Record) -> int:
    return int(record.realised.get("chunks") or 0)


def explain_cut(record: Record, uncut: Record | None) -> str | None:
    """Return what a cell's cut costs and gains on the chip that the user ships for, or None for a cell in one piece or
    without a prediction.

    uncut  the cell with the same request in one piece, if there is one
    """
    entry, count = shipped_placement(record), _count(record)
    if entry is None or entry.chip is None or count < 2:
        return None
    gains, others = _list_gains(record, entry, shipped_placement(uncut) if uncut else None)
    mine, its = headline(record), uncut and headline(uncut)
    cost = _cost(entry, mine, count)
    is_core_ml = traits(record.realised.get("runtime")).coreml  # no other runtime's time tells what a cut gains
    if mine and its and (mine.kind, mine.chip) == (its.kind, its.chip) and (is_core_ml or mine.kind == "estimated"):
        cost += f", and in one piece the cell is {its.kind} at {its.ms:.3g} ms"
        if mine.ms < its.ms:
            gains.append(f"{its.ms - mine.ms:.3g} ms")
    bought = f"the cut is predicted to gain {', '.join(gains) or 'nothing'}"
    if uncut is None and not gains:
        bought = "no cell of this sweep in one piece shows a gain"
    return f"cut into {count}: {'; '.join([cost, bought, *others])}."


def _cost(entry: Placement, latency: Latency | None, count: int) -> str:
    if entry.hand_over_ms is None:
        return f"the cost of {terminal.count(count - 1, 'hand-over')} is not estimated for {entry.chip}"
    if not entry.hand_over_ms:
        return f"no hand-over is from or to the Neural Engine of {entry.chip}, so none has an estimated cost"
    whole = f" of {latency.ms:.3g}" if latency and latency.kind == "estimated" else ""
    return f"hand-overs cost an estimated {entry.hand_over_ms:.2f}{whole} ms on {entry.chip}"


def _list_gains(record: Record, entry: Placement, uncut: Placement | None) -> tuple[list[str], list[str]]:
    """Return (gains in ops and size, other facts)."""
    assert entry.chip is not None
    gains, facts = [], []
    moved = entry.ops.ane - uncut.ops.ane if uncut else 0
    if moved > 0:
        gains.append(f"{terminal.count(moved, 'op')} on the Neural Engine")
    if moved < 0:
        facts.append(f"it takes {terminal.count(-moved, 'op')} off the Neural Engine")
    largest, share = record.value("chunk_bytes_max"), record.value("chunk_bytes_ideal")
    if largest is not None and share is not None:
        chip = chips.published().get(entry.chip)
        limit = sizes.MAX_IOS_BYTES if chip and chip.ios else sizes.MAX_WEIGHT_FILE_BYTES
        whole = share * _count(record)
        words = f"the largest program has {terminal.size(largest)} of {terminal.size(whole)} weights"
        facts.append(f"{words}, and one program may have {terminal.size(limit)}")
        if largest <= limit < whole:
            gains.append("a program that the Neural Engine takes")
    return gains, facts

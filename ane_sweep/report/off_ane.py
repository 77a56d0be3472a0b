"""The reasons why ops stay off the Neural Engine, and advice: from predictions, and from Core ML's own plan.

Cells that have a reason in common share its row, whatever the chip.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ane_sweep.placement.types import Kind, Placement, Reason
from ane_sweep.report.blocks import Block, Grid, Para, Points, Section
from ane_sweep.report.views import Cells, group_names
from ane_sweep.results.headline import name_chip

ROWS = 40  # of the table, the most costly first
HEADS = ["why they stay off the ANE", "ops", "planner cost %", "which ops", "cells", "source"]
NOTE = (
    "planner cost %: share of what Core ML's planner prices the program at when it chooses units. It is no share of the time: a "
    "lookup is priced at its whole table. A range is that of the cells and chips named."
)


@dataclass
class Place:
    """The cells and the chips that a reason or an advice applies to."""

    kind: Kind
    cells: set[int] = field(default_factory=set)
    chips: dict[str, None] = field(default_factory=dict)

    def add(self, n: int, entry: Placement) -> None:
        self.cells.add(n)
        self.chips |= {entry.chip: None} if entry.chip else {}

    def text(self, cells: Cells) -> str:
        """Return the place as text: `split_einsum chunks=2: m1, m4 (predicted)`."""
        able = {n for n, record in enumerate(cells.records) if any(record.placed(self.kind))}
        every = "every cell" if len(able) > 1 else ""
        name = every if self.cells >= able and every else group_names(cells, [sorted(self.cells)])[0]
        return (
            f"{name}: {', '.join(map(name_chip, self.chips))} ({self.kind})" if self.chips else f"{name} ({self.kind})"
        )


def section(cells: Cells) -> Section | None:
    """Return the section: advice first, with violated gates at the top, then a row for each reason, the most costly first."""
    pieces, why = advice(cells), _reasons(cells)
    made: list[Block] = [Para("To keep more on the Neural Engine:"), Points(pieces)] if pieces else []
    if why:
        more = f" The {ROWS} most costly of {len(why)}; the records have all." if len(why) > ROWS else ""
        made += [Grid(HEADS, why[:ROWS], [False, True, True, False, False, False]), Para(NOTE + more)]
    return Section("Why ops stay off the ANE", made) if made else None


def _reasons(cells: Cells) -> list[list[str]]:
    found: dict[tuple[str, str], tuple[Place, list[Reason]]] = {}
    for n, record in enumerate(cells.records):
        for entry in record.placement:
            for reason in entry.reasons:
                place, several = found.setdefault((entry.kind, reason.rule or reason.reason), (Place(entry.kind), []))
                place.add(n, entry)
                several.append(reason)
    ordered = sorted(found.values(), key=lambda one: -max(reason.cost_share for reason in one[1]))
    return [_row(several, place.text(cells)) for place, several in ordered]


def _row(several: Sequence[Reason], where: str) -> list[str]:
    worst = max(several, key=lambda reason: (reason.cost_share, reason.ops))
    types = ", ".join(f"{count} {kind}" for kind, count in list(worst.op_types.items())[:4])
    trust = f"{worst.source} ({worst.confidence} confidence)" if worst.confidence else worst.source
    ops, cost = _range(str(reason.ops) for reason in several), _range(f"{100 * r.cost_share:.1f}" for r in several)
    return [worst.reason, ops, cost, types, where, trust]


def _range(texts: Iterable[str]) -> str:
    ordered = sorted(set(texts), key=float)
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def advice(cells: Cells) -> list[str]:
    """Return each piece of advice once with its cells and chips; gates come first, as they concern the whole program."""
    found: dict[tuple[int, str, str], tuple[Place, dict[str, None]]] = {}
    for n, record in enumerate(cells.records):
        for entry in record.placement:
            gates = [gate for part in entry.chunks for gate in part.gates or []]
            pieces = [(0, f"{gate.advice} (gate {gate.gate}, {gate.effect}: {gate.reason}", "") for gate in gates]
            for text in entry.advice or []:  # `do this (4 ops: cast)`: the ops differ from cell to cell
                what, bracket, ops = text.rpartition(" (")
                piece = (what + bracket, ops.removesuffix(")")) if bracket else (f"{text} (", "ops not named")
                pieces.append((1, *piece))
            for order, text, ops in pieces:
                place, counts = found.setdefault((order, text, entry.kind), (Place(entry.kind), {}))
                place.add(n, entry)
                counts[ops] = None
    made = []
    for (_, text, _), (place, counts) in sorted(found.items(), key=lambda one: one[0][0]):
        several = " or ".join(list(counts)[:2]) + (" ..." if len(counts) > 2 else "")
        made.append(f"{text}{several}) [{place.text(cells)}]")
    return made

"""The reasons why ops stay off the Neural Engine, and advice: from predictions, and from Core ML's own plan.

Cells that have a reason in common share its row, whatever the chip.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ane_sweep.placement.rows import name_types
from ane_sweep.placement.types import Kind, Placement, Reason
from ane_sweep.report.blocks import Block, Grid, Para, Points, Section
from ane_sweep.report.views import Cells, group_names
from ane_sweep.results.headline import name_chip, shipped_chip

ROWS = 40  # of the table, the most costly first
HEADS = ["why they stay off the ANE", "ops", "planner cost %", "which ops", "cells", "source"]
# an advice's end; its words differ from cell to cell
_BEHIND = re.compile(r"(.*) \((\d+ ops?: .*|saves .*)\)", re.DOTALL)
_SAVES_MS = re.compile(r"saves [^;]* ms")
_SAVING, _SAVED = re.compile(r"(?:^|; )saves "), re.compile(r"saves about (\S+) of")
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
        chips = f": {', '.join(map(name_chip, self.chips))}" if self.chips else ""
        return f"{name}{chips} ({self.kind})"


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
    trust = f"{worst.source} ({worst.confidence} confidence)" if worst.confidence else worst.source
    ops, cost = _range(str(reason.ops) for reason in several), _range(f"{100 * r.cost_share:.1f}" for r in several)
    return [worst.reason, ops, cost, name_types(worst.op_types.items()), where, trust]


def _range(texts: Iterable[str]) -> str:
    ordered = sorted(set(texts), key=float)
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def advice(cells: Cells) -> list[str]:
    """Return each piece of advice once with its cells and chips, and what it saves on the chip that the user ships for;
    gates come first, as they concern the whole program.
    """
    found: dict[tuple[int, str, str], tuple[Place, dict[str, list[str]]]] = {}
    for n, record in enumerate(cells.records):
        own = shipped_chip(record)
        for entry in record.placement:
            gates = [gate for part in entry.chunks for gate in part.gates or []]
            pieces = [(0, f"{gate.advice} (gate {gate.gate}, {gate.effect}: {gate.reason})", "") for gate in gates]
            pieces += [(1, *_split(text)) for text in entry.advice or []]
            for order, text, words in pieces:
                place, said = found.setdefault((order, text, entry.kind), (Place(entry.kind), {}))
                place.add(n, entry)
                said.setdefault("" if entry.chip == own else entry.chip or "", []).append(words)
    made, shipped = [], next(filter(None, map(shipped_chip, cells.records)), None)
    for (_, text, _), (place, said) in sorted(found.items(), key=lambda one: one[0][0]):
        words = _join(said.get("") or next(iter(said.values())))
        if "" in said and len(place.chips) > 1 and _SAVES_MS.search(words):
            words += f" on {name_chip(str(shipped))}"
        made.append(f"{text}{f' ({words})' if words else ''} [{place.text(cells)}]")
    return made


def _split(text: str) -> tuple[str, str]:
    """Return the advice, and the words in brackets behind it, which differ from cell to cell: `4 ops: cast; saves ...`."""
    match = _BEHIND.fullmatch(text)
    return (match[1], match[2]) if match else (text, "")


def _join(several: Sequence[str]) -> str:
    """Return the words of several cells as those of one, with a range for each figure that differs."""
    counts, kinds, savings = list[str](), dict[str, None](), dict[str, None]()
    for words in several:
        ops, _, saving = words.rpartition("; ") if _SAVING.search(words) else (words, "", "")
        number, _, kind = ops.partition(": ")
        counts += [number.split(" ")[0]] if ops else []
        kinds |= dict.fromkeys(kind.split(", ") if ops else [])
        savings |= {saving: None} if saving else {}
    ops = f"{_range(counts)} {'op' if set(counts) == {'1'} else 'ops'}: {', '.join(kinds)}" if counts else ""
    return "; ".join(filter(None, [ops, _span(list(savings))]))


def _span(savings: Sequence[str]) -> str:
    """Return one saving unchanged, and several as a range."""
    if len(savings) < 2:
        return "".join(savings)
    known = sorted((match[1] if (match := _SAVED.match(text)) else "0" for text in savings), key=float)
    if known[0] == known[-1]:
        return f"saves about {known[0]} ms"
    return f"saves {'at most' if known[0] == '0' else f'about {known[0]} to'} {known[-1]} ms"

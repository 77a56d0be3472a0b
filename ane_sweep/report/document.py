"""The report of one sweep as sections, for whoever writes them down (page.py: HTML and Markdown)."""

import json
import shlex
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ane_sweep import outward
from ane_sweep.bridge import disk, retold
from ane_sweep.bridge.figures import Placement
from ane_sweep.bridge.record import Record, Status, read_records
from ane_sweep.report import beside, choice, drift, table, views
from ane_sweep.report.blocks import Block, Grid, Para, Plots, Points, Section, Widget, series_legend
from ane_sweep.report.doubts import doubts
from ane_sweep.report.drift import Drift

TABLE_FOLDS = 12  # a table with more rows than this folds where it is not the main one


@dataclass
class Sweep:
    """What a report is made from: the records, run.json, and the drift of the worst cell where it was looked for.

    All of it as others may read it: a report is made to be sent around.
    """

    records: list[Record]
    info: dict[str, Any] = field(default_factory=dict)
    drift: Drift | None = None

    def __post_init__(self) -> None:
        self.records, self.info = retold.records(self.records), outward.values(self.info)
        self.drift = self.drift and self.drift.told()
        self.cells = views.Cells(self.records)

    @classmethod
    def read(cls, folder: Path) -> "Sweep":
        """From a run's folder. Raises RunNotFound or StoreError."""
        records = read_records(folder)
        return cls(records, disk.read_json(folder / "run.json") or {}, drift.read(folder))


def sections(sweep: Sweep) -> list[Section]:
    """Every section that has something to show, in the order of the report."""
    if not sweep.records:
        return [Section("Cells", [Para("This sweep has no records.")])]
    made = [
        _doubts(sweep), _cells(sweep), _choice(sweep), _axes(sweep), _placement(sweep), _ladder(sweep), _failures(sweep),
        _drift(sweep), _published(sweep), _provenance(sweep),
    ]  # fmt: skip
    return [section for section in made if section is not None]


def _doubts(sweep: Sweep) -> Section | None:
    found = doubts(sweep.records)
    return Section("Doubts", [Points(found)]) if found else None


def _cells(sweep: Sweep) -> Section:
    parts = table.columns(sweep.records)
    rows = [[part.cells[n] for part in parts] for n in range(len(sweep.records))]
    tones = [record.status.value for record in sweep.records]
    heads, numeric = [part.head for part in parts], [part.numeric for part in parts]
    grid = Grid(heads, rows, numeric, list(range(len(rows))), tones=tones)
    return Section("Cells", [*_filters(sweep.cells), grid])


def _filters(cells: views.Cells) -> list[Block]:
    """A field for words, and a choice per axis with few values; they act on every table and plot of cells."""
    if len(cells.records) < 2:
        return []
    found = {
        axis: list(dict.fromkeys(cells.value(n, axis) for n in range(len(cells.records))))
        for axis in [*cells.axes, "status"]
    }
    return [Widget("filters", [(axis, values) for axis, values in found.items() if 1 < len(values) <= 30])]


def cell_facts(sweep: Sweep) -> dict[str, Any]:
    """What the page's script knows: each cell's name and axis values, and the figures to choose the best by."""
    cells, axes = sweep.cells, [*sweep.cells.axes, "status"]
    return {
        "cells": [{"name": name, **{a: cells.value(n, a) for a in axes}} for n, name in enumerate(cells.names)],
        "choice": choice.facts(sweep.records, choice.same_timing),
        "untested": choice.untested(sweep.records),
        "figures": {name: [head, unit, sign] for name, (head, unit, _, sign) in choice.FIGURES.items()},
    }


def _choice(sweep: Sweep) -> Section | None:
    records, labels = sweep.records, sweep.cells.names
    if len(choice.ranked(records)) < 2:
        return None
    front = choice.front(records)
    heads = ["on the front", *(f"{head} {unit}" for head, unit, *_ in choice.FIGURES.values())]
    rows = [[labels[n], *(_short(choice.figure(records[n], name)) for name in choice.FIGURES)] for n in front]
    fold = f"the {len(rows)} cells on the front" if len(rows) > TABLE_FOLDS else None
    grid = Grid(heads, rows, [False, True, True, True], front, fold)
    captions = ("filled: no other cell beats it in all three figures", "the same cells by size")
    plots = Plots(
        list(zip(views.pareto(sweep.cells, front), captions)), series_legend(sweep.cells.shades), sweep.cells.shade
    )
    goal = "latency_median_ms"
    first, tied = choice.best(records, goal, {}, choice.same_timing)
    said = (
        ""
        if first is None
        else f"Fastest: {labels[first]}"
        + (
            f"; not told apart from it: {'; '.join(labels[n] for n in tied[:5])}" + (" ..." if len(tied) > 5 else "")
            if tied
            else ""
        )
    )
    form = Widget("best", [(name, head, unit, sign) for name, (head, unit, _, sign) in choice.FIGURES.items()], said)
    return Section("Best under a constraint", [form, plots, grid])


def _axes(sweep: Sweep) -> Section | None:
    plots = []
    for axis in sweep.cells.axes:
        if svg := views.by_axis(sweep.cells, axis):
            plots.append((svg, f"by {axis}; lines join cells that differ in nothing else"))
    if not plots:
        return None
    return Section("Latency by axis", [Plots(plots, series_legend(sweep.cells.shades), sweep.cells.shade)])


def _placement(sweep: Sweep) -> Section | None:
    found = views.placements(sweep.cells)
    if not found:
        return None
    legend = [("ANE", "--ane"), ("GPU", "--gpu"), ("CPU", "--cpu")]
    plots = Plots([(svg, _more(what, left)) for what, svg, left in found], legend, "share of ops")
    rows = [
        [name, entry.kind, entry.chip or "-", *map(str, _counts(entry))]
        for name, record in zip(sweep.cells.names, sweep.records)
        for entry in record.placement
    ]
    heads = ["cell", "kind", "chip", "ANE", "GPU", "CPU", "all ops", "segments", "transitions"]
    grid = Grid(heads, rows, [False] * 3 + [True] * 6, fold=f"the figures: {len(rows)} rows")
    return Section("Placement", [plots, grid])


def _counts(entry: Placement) -> tuple[int, ...]:
    ops = entry.ops
    return ops.ane, ops.gpu, ops.cpu, ops.total, entry.segments, entry.transitions


def _more(what: str, left: int) -> str:
    return what + (f"; {left} more in the table" if left else "")


def _ladder(sweep: Sweep) -> Section | None:
    svg = views.ladder(sweep.cells)
    if svg is None:
        return None
    labels = sweep.cells.names
    known = [views.ladder_steps(record) for record in sweep.records]
    steps = [words for words in views.LADDER.values() if any(words in values for values in known)]
    rows = [[label, *(_short(values.get(s)) for s in steps)] for label, values in zip(labels, known) if values]
    grid = Grid(
        ["cell", *(f"{s} ms" for s in steps)], rows, [False] + [True] * len(steps), fold=f"all {len(rows)} cells"
    )
    caption = "from load to steady calls, the slowest cells first"
    return Section("Load and first calls", [Plots([(svg, caption)], series_legend(steps), "step"), grid])


def _failures(sweep: Sweep) -> Section | None:
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for n, record in enumerate(sweep.records):
        if record.status not in (Status.OK, Status.DEGRADED):
            groups[_failed_stage(record), record.status.value, record.reason or "no reason recorded"].append(n)
    if not groups:
        return None
    labels = sweep.cells.names
    rows = [
        [stage, str(len(cells)), reason, "; ".join(labels[n] for n in cells[:4]) + (" ..." if len(cells) > 4 else ""), status]
        for (stage, status, reason), cells in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1])))
    ]  # fmt: skip
    grid = Grid(["stage", "cells", "reason", "which", "status"], rows, [False, True, False, False, False])
    grid.tones = [row[-1] for row in rows]
    return Section("Failures by stage", [grid])


def _failed_stage(record: Record) -> str:
    if record.status is Status.REFUSED:
        return "plan"
    bad = [stage.stage for stage in record.stages if stage.status.value == record.status.value]
    return bad[0] if bad else "-"


def _drift(sweep: Sweep) -> Section | None:
    worst = drift.worst_cell(sweep.records)
    if sweep.drift is not None:
        return Section("Where the worst cell loses accuracy", drift.blocks(sweep.drift))
    if worst is None:
        return None
    name = sweep.cells.names[worst]
    words = f"Lowest PSNR: {name}, {sweep.records[worst].value('psnr_db'):.1f} dB. Which op loses it: "
    return Section("Accuracy by layer", [Para(f"{words}ane-sweep report {sweep.records[0].sweep} --drift")])


def _published(sweep: Sweep) -> Section | None:
    rows = beside.rows(sweep.cells)
    if not rows:
        return None
    grid = Grid(list(beside.HEADS), rows, [False] * 3 + [True] * 8 + [False])
    return Section("Published beside ours", [Para(beside.NOTE), grid])


def _provenance(sweep: Sweep) -> Section:
    records, info = sweep.records, sweep.info
    command = info.get("command")
    pairs = {
        "command": shlex.join(["ane-sweep", *map(str, command)]) if isinstance(command, list) else None,
        "sweep": records[0].sweep,
        "started": info.get("started"),
        "finished": info.get("finished"),
        "weights": _distinct(f"{r.weights.kind} {r.weights.source or ''}".strip() for r in records),
        **{key: _distinct(str(r.realised[key]) for r in records if key in r.realised) for key in ("texts", "inputs")},
        **{f"host {key}": _distinct(_flat(r.host.get(key)) for r in records) for key in _keys(records, "host")},
        **{
            f"version of {key}": _distinct(_flat(r.toolchain.get(key)) for r in records)
            for key in _keys(records, "toolchain")
        },
        "record schema": str(records[0].schema),
    }
    rows = [[key, str(value)] for key, value in pairs.items() if value]
    return Section("Provenance", [Grid(["what", "value"], rows, [False, False])])


def _keys(records: list[Record], name: str) -> list[str]:
    return list(dict.fromkeys(key for record in records for key in getattr(record, name)))


def _flat(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _distinct(values: Any) -> str:
    return ", ".join(sorted({value for value in values if value}))


def _short(value: Any) -> str:
    """A figure with the digits that count."""
    if not isinstance(value, (int, float)):
        return "-"
    return f"{value:.1f}" if abs(value) >= 100 and value % 1 else f"{value:.4g}"

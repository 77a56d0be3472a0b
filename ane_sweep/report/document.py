"""The report of one sweep as sections, which page.py writes as HTML and Markdown."""

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ane_sweep import outward
from ane_sweep.bridge import disk
from ane_sweep.bridge.figures import Placement
from ane_sweep.bridge.record import Record, Status, map_record_texts, read_records
from ane_sweep.bridge.task import DRAWN
from ane_sweep.report import (
    beside,
    drift,
    estimates,
    first,
    inside,
    machines,
    many,
    off_ane,
    search_section,
    table,
    tips,
    views,
)
from ane_sweep.report.blocks import Grid, Para, Plots, Points, Section, series_legend
from ane_sweep.report.doubts import RUNS, Doubt, with_cells
from ane_sweep.report.drift import Drift
from ane_sweep.results import search_log
from ane_sweep.terminal import format_path


@dataclass
class Sweep:
    """The content of a report: the records, run.json, the search, and the drift of the worst cell if it was examined.

    Texts are cleaned of secrets and paths, as a report is made to be sent around.
    """

    records: list[Record]
    info: dict[str, Any] = field(default_factory=dict)
    drift: Drift | None = None
    runs: str = RUNS  # the folder of the runs, as one would type it
    search: search_log.SearchLog | None = None

    def __post_init__(self) -> None:
        self.records, self.info = map_record_texts(self.records), outward.map_texts(self.info)
        self.drift = self.drift and self.drift.with_texts()
        self.runs = outward.make_public(self.runs)
        self.cells = views.Cells(self.records)
        self.places = many.select_shown_cells(self.records)  # of the cells that have a row and a point each
        few = len(self.places) < len(self.records)
        self.shown = views.Cells([self.records[n] for n in self.places]) if few else self.cells

    @classmethod
    def read(cls, folder: Path) -> "Sweep":
        """Read the sweep from a run's folder. Raises RunNotFound or StoreError."""
        records = read_records(folder)
        info, found = disk.read_json(folder / "run.json") or {}, search_log.read(folder)
        return cls(records, info, drift.read(folder), format_path(folder.parent), found)


def sections(sweep: Sweep) -> list[Section]:
    """Return every section that has something to show, in the order of the report."""
    if not sweep.records:
        return [Section("Cells", [Para("This sweep has no records.")])]
    told = with_cells(sweep.records, sweep.runs)
    made = [
        first.section(sweep.shown), _cells(sweep, told), machines.section(sweep.records, sweep.info),
        search_section.section(sweep.search, sweep.records),
        off_ane.section(sweep.cells),
        estimates.section(sweep.shown), _placement(sweep), _tips(sweep), _axes(sweep), inside.section(sweep.shown),
        _ladder(sweep), _failures(sweep), _drift(sweep),
        _published(sweep), _doubts(told), _provenance(sweep),
    ]  # fmt: skip
    return [section for section in made if section is not None]


def head(sweep: Sweep) -> dict[str, Any]:
    """Return the texts above the first section."""
    return first.head(sweep.records, with_cells(sweep.records, sweep.runs))


def _doubts(told: list[Doubt]) -> Section | None:
    return Section("Doubts", [Points([doubt.text for doubt in told], numbered=True)]) if told else None


def _cells(sweep: Sweep, told: list[Doubt]) -> Section:
    """Return the table, each row with the numbers of its own warnings; warnings about all cells stand above."""
    records = sweep.shown.records
    parts = estimates.whole_table(table.list_columns(records), records)
    parts[-1] = table.Column(
        "status", [f"{r.status.value}: {r.reason}" if r.reason else r.status.value for r in records]
    )
    rows = [[part.cells[n] for part in parts] for n in range(len(records))]
    timed = {n for n, record in enumerate(sweep.records) if record.value("latency_median_ms") is not None}
    numbered = [(number, set(doubt.cells)) for number, doubt in enumerate(told, 1) if doubt.doubts_figures]
    everywhere = [number for number, cells in numbered if len(timed) > 1 and timed <= cells]
    numbers = [[k for k, cells in numbered if n in cells and k not in everywhere] for n in sweep.places]
    grid = Grid([part.head for part in parts], rows, [part.numeric for part in parts], list(range(len(rows))))
    grid.tones, grid.doubts = [record.status.value for record in records], numbers
    said = [told[number - 1] for number in everywhere if not told[number - 1].meaning]  # the others stand in the head
    some = [Para(many.note(len(records), len(sweep.records)))] if len(records) < len(sweep.records) else []
    return Section("Cells", [*some, grid, *(Para(f"Of every cell: {doubt.text}") for doubt in said)], kind="cells")


def _axes(sweep: Sweep) -> Section | None:
    plots = []
    for axis in sweep.shown.axes:
        if svg := views.by_axis(sweep.shown, axis):
            plots.append((svg, f"by {axis}; lines join cells that differ in nothing else"))
    if not plots:
        return None
    return Section("Latency by axis", [Plots(plots, series_legend(sweep.shown.shades), sweep.shown.shade)])


def _placement(sweep: Sweep) -> Section | None:
    found = views.placements(sweep.shown)
    if not found:
        return None
    legend = [("ANE", "--ane"), ("GPU", "--gpu"), ("CPU", "--cpu")]
    plots = Plots([(svg, _more(what, left)) for what, svg, left in found], legend, "share of ops")
    rows = [
        [
            name,
            entry.kind,
            entry.chip or "-",
            *map(str, _counts(entry)),
            f"{100 * entry.cost_share.ane:.0f}",
            _estimated(record, entry),
        ]
        for name, record in zip(sweep.shown.names, sweep.shown.records)
        for entry in record.placement
    ]
    heads = [
        "cell",
        "kind",
        "chip",
        "ANE",
        "GPU",
        "CPU",
        "all ops",
        "segments",
        "transitions",
        "ANE planner cost %",
        "ms (estimated)",
    ]
    grid = Grid(heads, rows, [False] * 3 + [True] * 8, fold=f"the figures: {len(rows)} rows")
    return Section("Placement", [plots, grid])


def _counts(entry: Placement) -> tuple[int, ...]:
    ops = entry.ops
    return ops.ane, ops.gpu, ops.cpu, ops.total, entry.segments, entry.transitions


def _estimated(record: Record, entry: Placement) -> str:
    return estimates.text(record, entry.chip) if entry.kind == "predicted" and entry.chip else "-"


def _more(what: str, left: int) -> str:
    return what + (f"; {left} more in the table" if left else "")


def _ladder(sweep: Sweep) -> Section | None:
    svg = views.ladder(sweep.shown)
    if svg is None:
        return None
    labels = sweep.shown.names
    known = [views.ladder_steps(record) for record in sweep.shown.records]
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


def _tips(sweep: Sweep) -> Section | None:
    rows = tips.rows(sweep.records)
    return Section("What each tip changed", [Grid(list(tips.HEADS), rows, [False] * len(tips.HEADS))]) if rows else None


def _published(sweep: Sweep) -> Section | None:
    grid = beside.grid(sweep.cells)
    return None if grid is None else Section("Published beside ours", [Para(beside.NOTE), grid])


def _provenance(sweep: Sweep) -> Section:
    records, info = sweep.records, sweep.info
    command = info.get("command")
    pairs = {
        "command": shlex.join(["ane-sweep", *map(str, command)]) if isinstance(command, list) else None,
        "sweep": records[0].sweep,
        "started": info.get("started"),
        "finished": info.get("finished"),
        "weights": _distinct(f"{r.weights.kind} {r.weights.source or ''}".strip() for r in records),
        **{
            key.replace("_", " "): _distinct(str(r.realised.get(key)) for r in records if key in r.realised)
            for key in ("texts", "inputs", "grown_blocks", DRAWN)
        },
        **{f"host {key}": _distinct(_flat(r.host.get(key)) for r in records) for key in _keys(records, "host")},
        **{
            f"version of {key}": _distinct(_flat(r.toolchain.get(key)) for r in records)
            for key in _keys(records, "toolchain")
        },
        "record schema": str(records[0].schema),
    }
    rows = [[key, str(value)] for key, value in pairs.items() if value]
    plain = [[key, _flat(value) or "-"] for key, value in table.split_settings(records)[1].items()]
    usual = Grid(
        ["setting", "value"], plain, [False, False], fold=f"{len(plain)} settings of all cells that are as by default"
    )
    return Section("Provenance", [Grid(["what", "value"], rows, [False, False]), *([usual] if plain else [])])


def _keys(records: list[Record], name: str) -> list[str]:
    return list(dict.fromkeys(key for record in records for key in getattr(record, name)))


def _flat(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(sorted({value for value in values if value}))


def _short(value: object) -> str:
    """Return a figure with its significant digits."""
    if not isinstance(value, (int, float)):
        return "-"
    return f"{value:.1f}" if abs(value) >= 100 and value % 1 else f"{value:.4g}"

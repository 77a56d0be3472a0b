"""The report of one sweep as sections, which page.py writes as HTML and Markdown."""

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ane_sweep import outward
from ane_sweep.bridge import disk
from ane_sweep.bridge.record import Record, Status, map_record_texts, read_records
from ane_sweep.bridge.task import DRAWN
from ane_sweep.report import (
    beside,
    drift,
    estimates,
    first,
    inside,
    machines,
    off_ane,
    search_section,
    table,
    tips,
    views,
)
from ane_sweep.report.blocks import Grid, Para, Plots, Points, Section, figure_text, series_legend
from ane_sweep.report.doubts import RUNS, Doubt, about_all, with_cells
from ane_sweep.report.drift import Drift
from ane_sweep.results import ranking, search_log
from ane_sweep.results.headline import is_timed
from ane_sweep.terminal import format_path


@dataclass
class Sweep:
    """The content of a report: the records, run.json, the search, and the drift of the worst cell if it was examined.

    runs    the folder of the runs, as a user would type it
    places  positions of the cells in `shown`, each of which has a row and a point

    Texts have no secrets and paths, as reports are passed on.
    """

    records: list[Record]
    info: dict[str, object] = field(default_factory=dict)
    drift: Drift | None = None
    runs: str = RUNS
    search: search_log.SearchLog | None = None

    def __post_init__(self) -> None:
        self.records, self.info = map_record_texts(self.records), outward.map_texts(self.info)
        self.drift = self.drift and self.drift.with_texts()
        self.runs = outward.make_public(self.runs)
        self.cells = views.Cells(self.records)
        self.places = ranking.select_shown_cells(self.records)
        few = len(self.places) < len(self.records)
        self.shown = views.Cells([self.records[n] for n in self.places]) if few else self.cells

    @classmethod
    def read(cls, folder: Path) -> "Sweep":
        """Read the sweep from a run's folder. Raises RunNotFound or StoreError."""
        records = read_records(folder)
        info, found = disk.read_json(folder / "run.json") or {}, search_log.read(folder)
        return cls(records, info, drift.read(folder), format_path(folder.parent), found)


def sections(sweep: Sweep) -> list[Section]:
    """Return every section with content, in the order of the report."""
    if not sweep.records:
        return [Section("Cells", [Para("This sweep has no records.")])]
    doubts = with_cells(sweep.records, sweep.runs)
    made = [
        first.section(sweep.shown), _cells(sweep, doubts), machines.section(sweep.records, sweep.info),
        search_section.section(sweep.search, sweep.records),
        off_ane.section(sweep.cells),
        estimates.section(sweep.shown), _placement(sweep.shown), tips.section(sweep.records), _axes(sweep.shown),
        inside.section(sweep.shown), _ladder(sweep.shown), _failures(sweep.cells), _drift(sweep),
        beside.section(sweep.cells),
        Section("Doubts", [Points([doubt.text for doubt in doubts], numbered=True)]) if doubts else None,
        _provenance(sweep),
    ]  # fmt: skip
    return [section for section in made if section is not None]


def head(sweep: Sweep) -> first.Head:
    """Return the texts above the first section."""
    return first.head(sweep.records, with_cells(sweep.records, sweep.runs))


def _cells(sweep: Sweep, doubts: list[Doubt]) -> Section:
    """Return the table of cells, each row with the numbers of its own warnings; warnings about all cells come before it."""
    records, every = sweep.shown.records, len(sweep.records)
    parts = table.list_columns(records, estimates=True)
    status = [f"{r.status.value}: {r.reason}" if r.reason else r.status.value for r in records]
    rows = [list(row) for row in zip(*(part.cells for part in parts[:-1]), status)]
    several = sum(map(is_timed, sweep.records)) > 1
    everywhere = [doubt for doubt in about_all(doubts, sweep.records) if doubt.doubts_figures and several]
    own = {k: set(d.cells) for k, d in enumerate(doubts, 1) if d.doubts_figures and d not in everywhere}
    grid = Grid([part.head for part in parts], rows, [part.numeric for part in parts], list(range(len(rows))))
    grid.tones = [record.status.value for record in records]
    grid.doubts = [[k for k, cells in own.items() if n in cells] for n in sweep.places]
    note = (
        f"{len(records):,} of {every:,} cells: those that no other beats, some of each kind of trouble, and the fastest. Tables, plots "
        "and limits are of these; counts, failures and doubts of all. All cells: records.jsonl beside this page, or "
        "ane-sweep report RUN --json."
    )
    below = [Para(f"Of every cell: {d.text}") for d in everywhere if not d.meaning]  # the others stand in the head
    return Section("Cells", [*([Para(note)] if len(records) < every else []), grid, *below], kind="cells")


def _axes(cells: views.Cells) -> Section | None:
    drawn = ((axis, views.by_axis(cells, axis)) for axis in cells.axes)
    plots = [(svg, f"by {axis}; lines join cells that differ in nothing else") for axis, svg in drawn if svg]
    return Section("Latency by axis", [Plots(plots, series_legend(cells.shades), cells.shade)]) if plots else None


def _placement(cells: views.Cells) -> Section | None:
    found = views.placements(cells)
    if not found:
        return None
    captions = [(svg, what + (f"; {left} more in the table" if left else "")) for what, svg, left in found]
    rows = []
    for name, record in zip(cells.names, cells.records):
        for entry in record.placement:
            ops, cost = entry.ops, f"{100 * entry.cost_share.ane:.0f}"
            counts = map(str, (ops.ane, ops.gpu, ops.cpu, ops.total, entry.segments, entry.transitions))
            ms = table.estimate_text(record, entry.chip) if entry.kind == "predicted" and entry.chip else "-"
            rows.append([name, entry.kind, entry.chip or "-", *counts, cost, ms])
    heads = ["cell", "kind", "chip", "ANE", "GPU", "CPU", "all ops", "segments", "transitions"]
    heads += ["ANE planner cost %", "ms (estimated)"]
    grid = Grid(heads, rows, [False] * 3 + [True] * 8, fold=f"the figures: {len(rows)} rows")
    return Section("Placement", [Plots(captions, inside.UNITS, "share of ops"), grid])


def _ladder(cells: views.Cells) -> Section | None:
    svg = views.ladder(cells)
    if svg is None:
        return None
    known = [(name, views.ladder_steps(record)) for name, record in zip(cells.names, cells.records)]
    steps = [words for words in views.LADDER.values() if any(words in values for _, values in known)]
    rows = [[name, *(_short(values.get(step)) for step in steps)] for name, values in known if values]
    heads = ["cell", *(f"{step} ms" for step in steps)]
    grid = Grid(heads, rows, [False] + [True] * len(steps), fold=f"all {len(rows)} cells")
    caption = "from load to steady calls, the slowest cells first"
    return Section("Load and first calls", [Plots([(svg, caption)], series_legend(steps), "step"), grid])


def _failures(cells: views.Cells) -> Section | None:
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name, record in zip(cells.names, cells.records):
        if record.status not in (Status.OK, Status.DEGRADED):
            bad = (stage.stage for stage in record.stages if stage.status.value == record.status.value)
            stage = "plan" if record.status is Status.REFUSED else next(bad, "-")
            groups[stage, record.status.value, record.reason or "no reason recorded"].append(name)
    rows = [
        [stage, str(len(names)), reason, "; ".join(names[:4]) + (" ..." if len(names) > 4 else ""), status]
        for (stage, status, reason), names in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1])))
    ]
    grid = Grid(["stage", "cells", "reason", "which", "status"], rows, [False, True, False, False, False])
    grid.tones = [row[-1] for row in rows]
    return Section("Failures by stage", [grid]) if rows else None


def _drift(sweep: Sweep) -> Section | None:
    worst = drift.worst_cell(sweep.records)
    if sweep.drift is not None:
        return Section("Where the worst cell loses accuracy", drift.blocks(sweep.drift))
    if worst is None:
        return None
    psnr = f"{sweep.records[worst].value('psnr_db'):.1f} dB"
    words = f"Lowest PSNR: {sweep.cells.names[worst]}, {psnr}. Which op loses it: "
    return Section("Accuracy by layer", [Para(f"{words}ane-sweep report {sweep.records[0].sweep} --drift")])


def _provenance(sweep: Sweep) -> Section:
    records, info = sweep.records, sweep.info
    command = info.get("command")
    pairs = {
        "command": shlex.join(["ane-sweep", *map(str, command)]) if isinstance(command, list) else None,
        "sweep": records[0].sweep,
        "started": info.get("started"),
        "finished": info.get("finished"),
        "weights": _distinct(f"{r.weights.kind} {r.weights.source or ''}".strip() for r in records),
    }
    for key in ("texts", "inputs", "grown_blocks", DRAWN):
        pairs[key.replace("_", " ")] = _distinct(str(r.realised[key]) for r in records if key in r.realised)
    for word, parts in (("host", [r.host for r in records]), ("version of", [r.toolchain for r in records])):
        for key in dict.fromkeys(key for part in parts for key in part):
            pairs[f"{word} {key}"] = _distinct(_flat(part.get(key)) for part in parts)
    pairs["record schema"] = str(records[0].schema)
    rows = [[key, str(value)] for key, value in pairs.items() if value]
    usual = [[key, _flat(value) or "-"] for key, value in table.split_settings(records)[1].items()]
    fold = f"{len(usual)} settings of all cells that are as by default"
    more = [Grid(["setting", "value"], usual, [False, False], fold=fold)] if usual else []
    return Section("Provenance", [Grid(["what", "value"], rows, [False, False]), *more])


def _flat(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(sorted({value for value in values if value}))


def _short(value: float | None) -> str:
    """Return a figure with its significant digits, shortened."""
    return f"{value:.1f}" if value and value >= 100 and value % 1 else figure_text(value)

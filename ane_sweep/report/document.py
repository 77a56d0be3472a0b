"""The report of one sweep as sections, which page.py writes as HTML and Markdown."""

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from ane_sweep import outward
from ane_sweep.bridge import disk, metrics
from ane_sweep.bridge.record import Record, Status, map_record_texts, read_records
from ane_sweep.bridge.runtimes import traits
from ane_sweep.bridge.task import DRAWN, Realised
from ane_sweep.report import by_module, drift, estimates, first, inside, machines, off_ane, table, tips, views
from ane_sweep.report.beside import section as compare_with_published
from ane_sweep.report.blocks import Block, Grid, Para, Plots, Points, Section, figure_text, series_legend
from ane_sweep.report.columns import LOADED
from ane_sweep.report.doubts import RUNS, Doubt, about_all, with_cells
from ane_sweep.report.drift import Drift
from ane_sweep.report.search_section import section as describe_search
from ane_sweep.results import ranking, search_log
from ane_sweep.results.headline import answers_by_timing, is_check, is_timed, name_chip
from ane_sweep.terminal import format_path

COST = "ANE cost %: a share of the planner's prices, no share of the time."
SEGMENTS = "A segment is a run of ops on one unit; a transition is a change of unit, at which data is handed over."


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
        first.section(sweep.shown, sweep.records, sweep.runs), _cells(sweep, doubts), _failures(sweep.cells),
        _points("Doubts", [doubt.text for doubt in doubts if _is_doubt(doubt)], numbered=True),
        _axes(sweep.shown), describe_search(sweep.search, sweep.records),
        off_ane.section(sweep.cells), by_module.section(sweep.shown), _placement(sweep.shown),
        tips.section(sweep.records), _accuracy(sweep),
        _inside(sweep.shown), estimates.section(sweep.shown), compare_with_published(sweep.cells), _host_times(sweep.shown),
        _points("Notes", [doubt.text for doubt in doubts if not _is_doubt(doubt)]),
        machines.section(sweep.records, sweep.info), _provenance(sweep),
    ]  # fmt: skip
    return [section for section in made if section is not None]


def _is_doubt(doubt: Doubt) -> bool:
    return doubt.doubts_figures or doubt.meaning


def _points(title: str, items: list[str], numbered: bool = False) -> Section | None:
    return Section(title, [Points(items, numbered)]) if items else None


def head(sweep: Sweep) -> first.Head:
    """Return the texts above the first section."""
    return first.head(sweep.records, with_cells(sweep.records, sweep.runs))


def _cells(sweep: Sweep, doubts: list[Doubt]) -> Section:
    """Return the table of cells, each row with the numbers of its own warnings; warnings about all cells come before it."""
    records, every = sweep.shown.records, len(sweep.records)
    *parts, last = table.list_columns(records)
    # behind the status, which a narrow page shows
    minor = [part for part in parts if part.drop_order == LOADED]
    parts = [*(part for part in parts if part not in minor), last, *first.list_other_estimates(records), *minor]
    last.cells = [f"{r.status.value}: {r.reason}" if r.reason else r.status.value for r in records]
    rows = [list(row) for row in zip(*(part.cells for part in parts))]
    several = len(sweep.records) > 1 and any(r.status is Status.OK for r in sweep.records)
    everywhere = [doubt for doubt in about_all(doubts, sweep.records) if doubt.doubts_figures and several]
    own = {k: set(d.cells) for k, d in enumerate(doubts, 1) if d.doubts_figures and d not in everywhere}
    grid = Grid([part.head for part in parts], rows, [part.numeric for part in parts], list(range(len(rows))))
    grid.tones, grid.status = [record.status.value for record in records], parts.index(last)
    grid.doubts = [[k for k, cells in own.items() if n in cells] for n in sweep.places]
    note = (
        f"{len(records):,} of {every:,} cells: those that no other beats, some of each kind of trouble, and the fastest. Tables, plots "
        "and limits are of these; counts, failures and doubts of all. All cells: records.jsonl beside this page, or "
        "ane-sweep report RUN --json."
    )
    below = [k for k, d in enumerate(doubts, 1) if d in everywhere and not d.meaning]  # the others stand in the head
    said = [Para(f"Of every cell: doubt{'s' * (len(below) > 1)} {', '.join(map(str, below))}.")] if below else []
    said += [Para(COST)] if any(part.head.startswith("ANE cost %") for part in parts) else []
    return Section("Cells", [*([Para(note)] if len(records) < every else []), grid, *said], kind="cells")


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
            rows.append([name, entry.kind, name_chip(entry.chip or "-"), *counts, cost, ms])
    heads = ["cell", "kind", "chip", "ANE", "GPU", "CPU", "all ops", "segments", "transitions"]
    heads += ["ANE planner cost %", "ms (estimated)"]
    grid = Grid(heads, rows, [False] * 3 + [True] * 8, fold=f"the figures: {len(rows)} rows")
    return Section("Placement", [Plots(captions, inside.UNITS, "share of ops"), grid, Para(SEGMENTS)])


def _inside(cells: views.Cells) -> Section | None:
    """Return the details of each cell, with measured ones only where a timing is the cell's headline."""
    answering = [n for n, r in enumerate(cells.records) if answers_by_timing(r) and not _ran_on_cpu(r)]
    found = inside.section(_keep_timings(cells, answering))
    made = [*(found.blocks if found else ()), *_ladder(cells, answering)]
    return Section("Inside a cell", made) if made else None


def _host_times(cells: views.Cells) -> Section | None:
    """Return the times of this host's CPU that were asked for; None if there are none."""
    timed = ((n, r) for n, r in enumerate(cells.records) if is_timed(r) and not is_check(r))
    asked = [n for n, record in timed if _ran_on_cpu(record) or not answers_by_timing(record)]
    if not asked:
        return None
    rows = []
    for name, record in ((cells.names[n], cells.records[n]) for n in asked):
        medians = ", ".join(figure_text(timing.median_ms) for timing in record.timings) or "-"
        rows.append([name, str(record.realised.get("runtime")), table.measured_text(record), medians])
    kept = _keep_timings(cells, asked)
    found = inside.section(views.Cells([replace(record, placement=[]) for record in kept.records]))
    grid = Grid(["cell", "runtime", "ms, median ± IQR", "median ms of each process"], rows, [False, False, True, False])
    return Section("Times on this host", [grid, *(found.blocks if found else ()), *_ladder(cells, asked)])


def _ran_on_cpu(record: Record) -> bool:
    return traits(str(record.realised.get("runtime"))).hardware == "CPU"


def _keep_timings(cells: views.Cells, chosen: Sequence[int]) -> views.Cells:
    """Return all cells, of which only the chosen ones have what was measured while they ran."""
    kept = set(chosen)
    return views.Cells([r if n in kept else _drop_timings(r) for n, r in enumerate(cells.records)])


def _drop_timings(record: Record) -> Record:
    kept = {name: value for name, value in record.realised.items() if name not in ("costs", "planned_costs")}
    return replace(record, timings=[], realised=cast(Realised, kept))


def _ladder(cells: views.Cells, chosen: Sequence[int]) -> list[Block]:
    """Return the loads and first calls of the chosen cells as a plot and a table, or nothing if none has any."""
    svg = views.ladder(cells, chosen)
    if svg is None:
        return []
    known = [(cells.names[n], views.ladder_steps(cells.records[n])) for n in chosen]
    steps = [words for words in views.LADDER.values() if any(words in values for _, values in known)]
    rows = [[name, *(_short(values.get(step)) for step in steps)] for name, values in known if values]
    heads = ["cell", *(f"{step} ms" for step in steps)]
    grid = Grid(heads, rows, [False] + [True] * len(steps), fold=f"all {len(rows)} cells")
    caption = "from load to steady calls, the slowest cells first"
    return [Plots([(svg, caption)], series_legend(steps), "step"), grid]


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


def _accuracy(sweep: Sweep) -> Section | None:
    """Return the best and the worst cell in PSNR and each score, and the loss along the worst cell's program."""
    lines = []
    for spec in [metrics.METRICS["psnr_db"], *metrics.scores()]:
        known = [(figure, n) for n, r in enumerate(sweep.records) if (figure := r.value(spec.name)) is not None]
        if known:
            ends = [min(known), max(known)][:: 1 if spec.better > 0 else -1]
            named = [f"{spec.text(figure)} {spec.shown_unit}".rstrip() for figure, _ in ends]
            names = [f" ({sweep.cells.names[n]})" if len(known) > 1 else "" for _, n in ends]
            same = named[0] == named[1]
            better = "" if same else f", best {named[1]}{names[1]}"
            lines.append(f"{spec.short}: {'' if same else 'worst '}{named[0]}{'' if same else names[0]}{better}.")
    if sweep.drift is not None:
        return Section("Accuracy", [Points(lines), *drift.blocks(sweep.drift)])
    if drift.worst_cell(sweep.records) is not None:
        lines.append(f"Which op of the worst cell loses it: ane-sweep report {sweep.records[0].sweep} --drift")
    return Section("Accuracy", [Points(lines)]) if lines else None


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

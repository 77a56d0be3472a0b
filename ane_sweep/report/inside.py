"""Details of cells: what a cut costs and gains, the parts of one prediction, chunk by chunk, the steps of one process
from load to the last call, and the ops that take most time.

Parts and gaps are measured on the host of the record; the strip below a part shows its planner cost by unit as planned
(Core ML) or predicted, not measured.
"""

from ane_sweep.bridge.figures import Timing
from ane_sweep.bridge.record import Record
from ane_sweep.bridge.task import RewritesDone
from ane_sweep.placement.types import Placement
from ane_sweep.report import figures
from ane_sweep.report.blocks import Block, Grid, Para, Plots, Points, Section
from ane_sweep.report.blocks import figure_text as ms_text
from ane_sweep.report.views import Cells, cut
from ane_sweep.results import cuts
from ane_sweep.results.headline import measured_ms

ROWS = 16  # bars in one picture; the tables have all
STEPS = ("load", "first call", "early calls", "samples", "pause", "after it")
_COLOURS = dict(zip(STEPS, (7, 1, 4, 0, 9, 2)))
CHUNK, OTHER, GAP = 3, 5, 1  # series: chunks in turns, and what lies between them
UNITS = [("ANE", "--ane"), ("GPU", "--gpu"), ("CPU", "--cpu")]
NOTE = (
    "Measured: the median of each chunk's own call, and of what passes between two (handing over, and whoever drives the chain); "
    "the rest of a prediction lies before the first and behind the last. The thin strip beneath a chunk: how its "
    "planner cost is {kind} to be shared out by unit, which is no share of the time. Medians of parts need not add up to the "
    "median of the whole to the last digit."
)
WHERE = "Every process as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing: timelines/ beside records.jsonl."


def section(cells: Cells) -> Section | None:
    """Return the section, or None if no cell was timed, none is cut and none rewritten."""
    timed = [n for n, record in enumerate(cells.records) if record.timings]
    blocks = [*_cuts(cells), *_rewrites(cells), *(_timings(cells, timed) if timed else [])]
    return Section("Inside a cell", blocks) if blocks else None


def _cuts(cells: Cells) -> list[Block]:
    """Return what the cut of each cell in chunks costs and gains, sentences of several cells once."""
    found: dict[str, list[str]] = {}
    for name, said in zip(cells.names, cuts.explain_cuts(cells.records)):
        if said:
            found.setdefault(said, []).append(name)
    lines = [f"{', '.join(names)}: {said}" for said, names in found.items()]
    more = [f"and {len(lines) - ROWS} more"] if len(lines) > ROWS else []
    return [Points([*lines[:ROWS], *more])] if lines else []


def _rewrites(cells: Cells) -> list[Block]:
    """Return the rewrites of each program, applied or refused, with the reason; cells with equal ones share rows."""
    found: list[tuple[RewritesDone, list[str]]] = []
    for name, record in zip(cells.names, cells.records):
        if done := record.realised.get("rewrites"):
            names = next((names for other, names in found if other == done), None)
            if names is None:
                found.append((done, names := []))
            names.append(name)
    rows = [row for done, names in found for row in _list_rewrites(done, cut(", ".join(names)))]
    heads = ["cell", "judged on", "rewrite", "places", "result", "why"]
    grid = Grid(heads, rows, [False] * 3 + [True, False, False], fold=f"what was rewritten: {len(rows)} rows")
    return [grid] if rows else []


def _list_rewrites(done: RewritesDone, name: str) -> list[list[str]]:
    rows = [
        [name, done["chip"], one["name"], str(one["places"]), result, one["reason"]]
        for result, outcomes in (("applied", done["applied"]), ("refused", done["refused"]))
        for one in outcomes
    ]
    unmatched = ", ".join(done["unmatched"])
    return [*rows, [name, done["chip"], unmatched, "0", "no place", "matches no op"]] if unmatched else rows


def _timings(cells: Cells, timed: list[int]) -> list[Block]:
    blocks: list[Block] = _predictions(cells, [n for n in timed if parts(cells.records[n])])
    shown = timed[:ROWS]
    bars: list[figures.Bar] = [(cut(cells.names[n]), process(cells.records[n].timings[0]), []) for n in shown]
    svg = figures.spans(bars, x_label="s", name="from load to the last call")
    legend = [(step, f"--s{_COLOURS[step]}") for step in STEPS if step != "pause"]
    more = f"; {len(timed) - len(shown)} more cells in records.jsonl" if len(timed) > len(shown) else ""
    caption = f"one process of each cell, from load to the last call (measured){more}"
    blocks.append(Plots([(svg, caption)], legend, "step"))
    return [*blocks, *_costs(cells), Para(WHERE)]


def _predictions(cells: Cells, found: list[int]) -> list[Block]:
    if not found:
        return []
    bars = [(cut(cells.names[n]), *_bar(cells.records[n])) for n in found[:ROWS]]
    kinds = dict.fromkeys(entry.kind for n in found if (entry := placed(cells.records[n])))
    svg = figures.spans(bars, x_label="ms", name="one prediction")
    legend = [("chunk", f"--s{CHUNK}"), ("the next", f"--s{OTHER}"), ("between", f"--s{GAP}"), *UNITS]
    most = max(len(parts(cells.records[n])) for n in found)
    heads = ["cell", "all ms", *(f"chunk {k} ms" for k in range(1, most + 1))]
    heads += ["between ms", "between %", "most between"]
    rows = [_row(cells.names[n], cells.records[n], most) for n in found]
    grid = Grid(heads, rows, [False] + [True] * (len(heads) - 2) + [False], fold=f"the figures: {len(rows)} rows")
    note = NOTE.format(kind=" or ".join(kinds) or "not known")
    return [Para(note), Plots([(svg, "one prediction, chunk by chunk (measured)")], legend, ""), grid]


def parts(record: Record) -> list[float]:
    """Return the milliseconds of each chunk; [] for an uncut program and for a pipeline that does not report them."""
    found: list[float] = []
    while (value := record.value(f"latency_chunk_{len(found) + 1}_median_ms")) is not None:
        found.append(value)
    return found


def gaps(record: Record) -> list[float]:
    """Return the milliseconds after each chunk but the last."""
    return [record.value(f"latency_gap_{n}_median_ms") or 0.0 for n in range(1, len(parts(record)))]


def placed(record: Record) -> Placement | None:
    """Return the placement with the timed chunks: the planned one, else the predicted one."""
    wanted = len(parts(record))
    entries = [*record.placed("planned"), *record.placed("predicted")]
    return next((entry for entry in entries if len(entry.chunks) == wanted), None)


def _bar(record: Record) -> tuple[list[figures.Span], list[figures.Strip]]:
    bar: list[figures.Span] = []
    strips: list[figures.Strip] = []
    own, between, place = parts(record), [*gaps(record), 0.0], placed(record)
    at = 0.0
    for n, (ms, gap) in enumerate(zip(own, between, strict=True)):
        bar += [(ms, OTHER if n % 2 else CHUNK), (gap, GAP)]
        left = at
        for unit in figures.UNITS if place else ():
            share = getattr(place.chunks[n].cost_share, unit) if place else 0.0
            strips.append((left, ms * share, unit))
            left += ms * share
        at += ms + gap
    return bar, strips


def _row(name: str, record: Record, most: int) -> list[str]:
    own, between = parts(record), gaps(record)
    whole, all_gaps = measured_ms(record), record.value("latency_gaps_median_ms")
    worst = max(range(len(between)), key=between.__getitem__, default=None)  # of one chunk alone there is none between
    return [
        name, ms_text(whole), *(ms_text(ms) for ms in own), *("-" for _ in range(most - len(own))), ms_text(all_gaps),
        f"{100 * all_gaps / whole:.1f}" if whole and all_gaps is not None else "-",
        "-" if worst is None else f"{worst + 1} and {worst + 2}: {ms_text(between[worst])} ms",
    ]  # fmt: skip


def process(timing: Timing) -> list[figures.Span]:
    """Return the steps of one process in seconds, in order."""
    steps = {
        "load": timing.load_ms, "first call": timing.first_ms, "early calls": sum(timing.warmup_ms),
        "samples": sum(timing.samples_ms) * timing.loops, "pause": 1000 * timing.idle_s if timing.after_idle_ms else 0,
        "after it": timing.after_idle_ms,
    }  # fmt: skip
    return [(ms / 1000, _COLOURS[step]) for step, ms in steps.items() if ms]


def _costs(cells: Cells) -> list[Block]:
    """Return the ops that take most of a prediction, measured in this runtime or planned by Core ML."""
    rows = [
        [
            name, f"{costs['kind']}, {costs['source']}", op["op"], op["type"], str(op["chunk"]), op.get("unit") or "-",
            f"{100 * op['share']:.1f}",
        ]
        for name, record in zip(cells.names, cells.records)
        for costs in (record.realised.get("planned_costs"), record.realised.get("costs")) if isinstance(costs, dict)
        for op in costs["ops"]
    ]  # fmt: skip
    heads = ["cell", "share is", "op", "type", "chunk", "unit", "share %"]
    fold = f"which ops take the time: {len(rows)} rows"
    return [Grid(heads, rows, [False] * 4 + [True, False, True], fold=fold)] if rows else []

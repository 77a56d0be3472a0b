"""One table and one report for runs of several machines, cell by cell: `ane-sweep report m1.zip m2.zip`.

Each row is a request, each column a machine. Figures of different machines are never tested, ranked or pooled together.
`compare --across-hosts` compares figures that do not depend on the host.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ane_sweep import folders, outward, tables
from ane_sweep.bridge import metrics
from ane_sweep.bridge.metrics import RANKED, MetricSpec
from ane_sweep.bridge.record import Record, Status
from ane_sweep.bundles import bundle
from ane_sweep.compare import match, sides
from ane_sweep.errors import ConfigError
from ane_sweep.report import blocks, document, figures, table, views
from ane_sweep.report.blocks import Grid, Para, Plots, Section
from ane_sweep.results.headline import HEADLINE, answers_by_timing, headline, measured_ms
from ane_sweep.terminal import count

AXIS = "host"  # the axis that distinguishes records of several machines in one report
NOTE = (
    "Each machine's column is what was measured on that machine. Timings of several machines are never tested as those of one "
    "host, and no ranking here goes across them; `ane-sweep compare A B --across-hosts` says what changed in what no host "
    "decides (accuracy, size, predictions, status)."
)
ROWS = 40  # of the picture; the table has all


@dataclass
class Machines:
    """Results of several machines: the column names, and for each request its label and its record (or None) on each."""

    names: list[str]
    rows: list[tuple[str, list[Record | None]]]


def is_bundle(word: str) -> bool:
    """Return True if a word is the path of a file that `ane-sweep export` could have written, rather than a run."""
    path = folders.user_path(word)
    return path.is_file() and path.name != "records.jsonl"


def records(out: Path, word: str) -> list[Record]:
    """Return the records of a bundle (without importing it), of a run, or of a selection of its cells.

    Raises StoreError, RunNotFound, ConfigError.
    """
    return bundle.read(folders.user_path(word)).records if is_bundle(word) else sides.side(out, word).records


def together(out: Path, words: list[str]) -> Machines:
    """Group several files or runs by machine.

    Raises ConfigError if one of them has a request twice, or if all come from one machine.
    """
    found: list[tuple[str, str, list[Record]]] = []  # word, name, records
    for word in words:
        groups: dict[str, list[Record]] = {}
        for record in records(out, word):
            if record.status is not Status.SKIPPED:
                groups.setdefault(json.dumps(match.machine(record), sort_keys=True, default=str), []).append(record)
        found += [(word, _name(group[0]), group) for group in groups.values()]
    if len(found) < 2:
        raise ConfigError(
            f"{' '.join(words)}: all of it is of one machine ({found[0][1] if found else 'no cell ran'}); name a second"
        )
    names = [name for _, name, _ in found]
    names = [f"{name}, {Path(word).stem}" if names.count(name) > 1 else name for word, name, _ in found]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"{' '.join(words)}: a machine stands there twice ({max(names, key=names.count)}); name each once"
        )
    requests, label = match.requests([group for _, _, group in found], {AXIS, "machine"})
    for (word, _, _), request in zip(found, requests):
        if any(len(one) > 1 for one in request.values()):
            raise ConfigError(
                f"{word}: two of its cells are one request; choose the one that is meant with {word}:axis=value"
            )
    keys = list(dict.fromkeys(key for request in requests for key in request))
    return Machines(names, [(label[key], [one.get(key, [None])[0] for one in requests]) for key in keys])


def _name(record: Record) -> str:
    scripted = " [stand-in]" if record.host.get("stand_in") else ""
    return f"{record.host.get('chip') or record.host.get('machine') or 'unknown machine'}{scripted}"


def grid(found: Machines) -> Grid:
    """Return the table with one row for each cell: the headline latencies, measured ones for each machine, then the other
    figures; a figure has one column if all machines agree and else one for each.
    """
    every = [record for _, row in found.rows for record in row if record is not None]
    specs = [spec for spec in metrics.shown_in("report") if spec.name in RANKED and spec.name != HEADLINE]
    shown: list[tuple[str, Callable[[Record], str], bool]] = [("ms", _measured, True)]
    estimated = dict.fromkeys(one.chip for record in every if (one := headline(record)) and one.chip)
    shown += [(table.estimate_head(chip), partial(table.estimate_text, chip=chip), True) for chip in estimated]
    shown += [(spec.column, partial(_metric, spec=spec), True) for spec in specs]
    shown += [(table.VERDICT, table.verdict_text, False), ("status", table.status_text, False)]
    parts: list[tuple[str, list[str], bool]] = []
    for head, text, numeric in shown:
        missing = "not measured" if head == "status" else "-"
        columns = [
            [missing if (record := row[n]) is None else text(record) for _, row in found.rows]
            for n in range(len(found.names))
        ]
        known = [{text for text in values if text != "-"} for values in zip(*columns)]
        if (head == "ms" and any(known)) or any(len(texts) > 1 for texts in known):
            parts += [(f"{name}: {head}", column, numeric) for name, column in zip(found.names, columns)]
        elif any(known):
            parts.append((head, [next(iter(texts), "-") for texts in known], numeric))
    rows = [list(row) for row in zip((label for label, _ in found.rows), *(cells for _, cells, _ in parts))]
    return Grid(["cell", *(head for head, _, _ in parts)], rows, [False, *(numeric for *_, numeric in parts)])


def _measured(record: Record) -> str:
    return table.measured_text(record) if answers_by_timing(record) else "-"


def _metric(record: Record, spec: MetricSpec) -> str:
    return spec.text(metrics.value(record, spec))


def as_text(found: Machines) -> str:
    """Return the table as text for a terminal or a pipe."""
    made = grid(found)
    right = {n for n, numeric in enumerate(made.numeric) if numeric}
    lines = [_head(found), "", tables.aligned(made.rows, heads=made.heads, right=right), "", NOTE]
    return outward.escape_controls("\n".join(lines)) + "\n"


def _head(found: Machines) -> str:
    every = sum(all(row) for _, row in found.rows)
    named = f"{len(found.names)} machines ({', '.join(found.names)})"
    kinds = "ms: measured, median ± IQR; ms (est.): estimated, whichever machine planned it"
    return f"{count(len(found.rows), 'cell')} on {named}, {every} on all of them; {kinds}"


def as_markdown(found: Machines) -> str:
    return f"{outward.markdown(_head(found))}\n\n{blocks.markdown(grid(found))}\n{outward.markdown(NOTE)}\n"


def as_json(found: Machines) -> str:
    """Return a JSON array with each cell's label, and its record (or null) by machine."""
    rows = [
        {"cell": label, "machines": {n: r and r.to_dict() for n, r in zip(found.names, row)}}
        for label, row in found.rows
    ]
    return json.dumps(rows, indent=1, allow_nan=False) + "\n"


def report(found: Machines) -> tuple[document.Sweep, list[Section]]:
    """Return one report of all machines: first their table, then the sections of one sweep in which the machine is an axis."""
    sweeps = list(dict.fromkeys(record.sweep for _, row in found.rows for record in row if record is not None))
    joined = "-and-".join(sweeps) if len(sweeps) < 3 else f"{sweeps[0]}-and-{len(sweeps) - 1}-more"
    marked = [
        replace(record, cell={AXIS: name, **record.cell}, sweep=joined[:120])
        for n, name in enumerate(found.names)
        for record in (row[n] for _, row in found.rows)
        if record is not None
    ]
    sweep = document.Sweep(marked)
    return sweep, [_section(found), *document.sections(sweep)]


def _section(found: Machines) -> Section:
    made: list[blocks.Block] = [Para(NOTE), grid(found)]
    ms = [
        (label, {name: measured_ms(r) for name, r in zip(found.names, row) if r and answers_by_timing(r)})
        for label, row in found.rows
    ]
    timed = [(views.cut(label), {name: value for name, value in by.items() if value}) for label, by in ms]
    if timed := [(label, values) for label, values in timed if values][:ROWS]:
        svg = figures.ladder(timed, found.names, x_label="latency ms", name="machines")
        caption = "each cell on each machine (measured, medians)"
        made.append(Plots([(svg, caption)], blocks.series_legend(found.names), "machine"))
    return Section("Machines", made)

"""The final table of a sweep, as a terminal, a pipe or a log has it, as Markdown for a README and as JSON for scripts:
a heading, a row per cell, warnings, the answer.

On a narrow screen, headings become shorter, and then the columns go that have no part in the answer.
"""

import json
from collections.abc import Sequence

from rich.box import Box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ane_sweep import outward, tables
from ane_sweep.bridge.record import Record, Status, map_record_texts
from ane_sweep.report import blocks, table, tips
from ane_sweep.report.columns import Column
from ane_sweep.report.doubts import RUNS, doubts
from ane_sweep.results import ranking
from ane_sweep.results.answer import FETCH, answer, choose
from ane_sweep.results.headline import estimated_chips, headline, name_chip
from ane_sweep.results.ranking import not_ok_groups

_RULE = Box("    \n    \n -  \n    \n    \n    \n    \n    \n", ascii=True)  # a line under the heads and nothing else
_STYLES = {Status.OK: "green", Status.DEGRADED: "yellow", Status.FALLBACK: "yellow", Status.REFUSED: "dim"}
SPREAD = "bands of latencies"
COST_NOTE = "ANE cost % is a share of Core ML's planner prices, no share of the time."


def columns(records: list[Record], width: int | None = None) -> tuple[list[Column], list[str]]:
    """Return (the columns that fit, the names of the others). A reason appears as a number, and its text once below."""
    parts = table.list_columns(records, estimates=True)
    numbers = {r.cell_key: n for n, group in enumerate(not_ok_groups(records), 1) for r in group}
    words = [r.status.value + (f" [{numbers[r.cell_key]}]" if r.cell_key in numbers else "") for r in records]
    parts[-1] = Column("status", words)
    if width is None or natural(parts) <= width:
        return parts, []
    names = {id(part): part.head for part in parts}
    for part in parts:
        part.head = part.narrow or part.head.replace(" ", "\n")
    hidden = []
    optional = [part for part in reversed(parts) if part.drop_order]  # of equal ones the last first
    for part in sorted(optional, key=lambda part: part.drop_order):
        if natural(parts) > width:
            parts.remove(part)
            hidden.append(names[id(part)])
    if natural(parts, gap=1) > width:
        for part in parts:
            if part.numeric and any(" " in text for text in part.cells) and " ms" in names[id(part)]:
                part.cells = [text.split(" ")[0] for text in part.cells]
                hidden.append(SPREAD)
    return parts, list(dict.fromkeys(hidden))


def _name_hidden(hidden: list[str], chips: list[str]) -> str:
    """Return the names of hidden columns for one line: `M1` for an estimate, without the shares of that chip."""
    names = {table.estimate_head(chip): name_chip(chip) for chip in chips}
    gone = tuple(f"{name} ANE " for head, name in names.items() if head in hidden)
    last = sorted(hidden, key=lambda head: head == table.CHECK_HEAD)  # the check says least
    return ", ".join(names.get(head, head) for head in last if not head.startswith(gone))


def natural(parts: list[Column], gap: int = 2) -> int:
    """Return the width of a table with this many spaces between columns."""
    return sum(part.width() for part in parts) + gap * (len(parts) - 1)


def as_table(records: list[Record], width: int | None = None, runs: str = RUNS, answered: bool = True) -> Group | Text:
    """Return the table for rich: heads, rows, warnings and, if `answered`, the answer. `width` is that of the console that
    will print it; `runs` is the folder of the runs, as a user would type it.
    """
    if not records:
        return Text("no records")
    records = map_record_texts(records, outward.escape_controls)
    parts, hidden = columns(records, width)
    gap = 1 if width is None or natural(parts) <= width else 0
    made = Table(box=_RULE, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for part in parts:
        # If nothing else helps, words wrap; figures never do.
        made.add_column(part.head, justify="right" if part.numeric else "left", no_wrap=part.numeric, overflow="fold")
    for index, record in enumerate(records):
        cells = [Text(part.cells[index]) for part in parts[:-1]]
        made.add_row(*cells, Text(parts[-1].cells[index], style=_STYLES.get(record.status, "red")))
    above = [Text(line, style="bold" if line.startswith("note:") else "") for line in table.list_head_lines(records)]
    below = Table.grid(padding=(0, 1, 0, 0))
    chips = estimated_chips(*records)
    said = [line for line in answer(records, runs) if not line.startswith(FETCH)] if answered else []
    notes = list_notes(records, runs, said)
    for number, line in enumerate(notes, 1):
        below.add_row(Text(f"[{number}]"), Text(line, style="yellow"))
    paired = [Text(line) for line in tips.lines(records)]
    others = [line for line in said[1:] if not any(line in note for note in notes)]
    return Group(
        *above, Text(), made,
        *([Text(f"not shown at this width: {_name_hidden(hidden, chips)}")] if hidden else ()),
        *((Text(), *paired) if paired else ()), *((Text(), below) if below.row_count else ()),
        Text(), *(Text(line, style="bold") for line in said[:1]), *map(Text, others),
    )  # fmt: skip


def list_commands(records: list[Record], runs: str = RUNS) -> list[str]:
    """Return the answer's command on a line that no terminal's width may break: it is to be copied."""
    return [outward.escape_controls(line) for line in answer(records, runs) if line.startswith(FETCH)]


def as_text(records: list[Record], width: int = 100, runs: str = RUNS, answered: bool = True) -> str:
    """Return the table as plain text of at most `width` columns, without colour: for pipes, logs and tests. Only the
    command that ends it may be longer.
    """
    commands = list_commands(records, runs) if answered else []
    return "\n".join([tables.plain(as_table(records, width, runs, answered), width), *commands]) + "\n"


def as_markdown(records: list[Record], notes: bool = True, runs: str = RUNS) -> str:
    """Return the table as Markdown; with `notes`, also the lines above and below it."""
    if not records:
        return "no records\n"
    parts = table.list_columns(records)
    rows = [[part.cells[index] for part in parts] for index in range(len(records))]
    shown = blocks.markdown(blocks.Grid([part.head for part in parts], rows, [part.numeric for part in parts]))[:-1]
    if not notes:
        return shown
    above = "  \n".join(map(outward.markdown, table.list_head_lines(records)))
    lines = answer(records, runs)
    under = list_notes(records, runs, lines)
    below = "".join(f"{number}. {outward.markdown(line)}\n" for number, line in enumerate(under, 1))
    first, *others = map(outward.markdown, lines)
    answered = "  \n".join([f"**{first}**", *others])
    return f"{above}\n\n{shown}" + (f"\n{below}" if below else "") + f"\n{answered}\n"


def as_json(records: list[Record]) -> str:
    """Return one JSON array of whole records, in ASCII, so that no control character reaches a terminal."""
    return json.dumps([record.to_dict() for record in records], indent=1, allow_nan=False) + "\n"


def list_notes(records: list[Record], runs: str, answered: Sequence[str]) -> list[str]:
    """Return the warnings, then why cells have no estimate for a chip, unless the answer's sentences give that reason."""
    given, missing = " ".join(answered), table.list_not_estimated(records)
    missing = [line for line in missing if line.partition(": ")[2].rstrip(".") not in given]
    return [*doubts(records, runs), *missing, *([COST_NOTE] if _has_costlier_winner(records) else [])]


def _has_costlier_winner(records: list[Record]) -> bool:
    """Return True if a cell to ship for its latency has a lower share of the cost on the ANE than a cell behind it."""
    share = ranking.SPEEDS[1]
    return any(
        headline(one.first) and any(_figure(cell, share) > _figure(one.first, share) + 0.005 for cell in one.cells)
        for one in choose(records)
    )


def _figure(record: Record, name: str) -> float:
    return ranking.get_figure(record, name) or 0.0

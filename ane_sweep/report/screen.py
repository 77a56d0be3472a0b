"""The final table of a sweep on a terminal, in a pipe and in a log: a heading, a row per cell, warnings below.

On a narrow screen, headings become shorter, and then the least important columns are dropped.
"""

from rich.box import Box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ane_sweep import outward, tables
from ane_sweep.bridge import metrics
from ane_sweep.bridge.record import Record, Status, map_record_texts
from ane_sweep.report import table, tips
from ane_sweep.report.doubts import RUNS, doubts
from ane_sweep.report.table import PREDICTED, Column
from ane_sweep.results.headline import HEADLINE, estimated_chips
from ane_sweep.results.ranking import not_ok_groups

_RULE = Box("    \n    \n -  \n    \n    \n    \n    \n    \n", ascii=True)  # a line under the heads and nothing else
_STYLES = {Status.OK: "green", Status.DEGRADED: "yellow", Status.FALLBACK: "yellow", Status.REFUSED: "dim"}
IQR = "IQR"


def columns(records: list[Record], width: int | None = None) -> tuple[list[Column], list[str]]:
    """Return (the columns that fit, the names of the others). A reason appears as a number, and its text once below."""
    parts = table.list_columns(records, estimates=True)
    specs = metrics.shown_in("table")
    short = {spec.column: spec.narrow for spec in specs if spec.narrow} | {PREDICTED: "ANE %"}
    metrics_to_drop = [spec.column for spec in sorted(specs, key=lambda spec: spec.drop_order) if spec.drop_order]
    going = [table.estimate_head(chip) for chip in reversed(estimated_chips(*records))]
    going += [table.COST, IQR, *metrics_to_drop, PREDICTED]  # the first goes first
    latency = metrics.METRICS[HEADLINE].column
    numbers = {r.cell_key: n for n, group in enumerate(not_ok_groups(records), 1) for r in group}
    words = [r.status.value + (f" [{numbers[r.cell_key]}]" if r.cell_key in numbers else "") for r in records]
    parts[-1] = Column("status", words)
    hidden: list[str] = []
    if width is None or natural(parts) <= width:
        return parts, hidden
    for part in parts:
        part.head = short.get(part.head, part.head)
    for name in going:
        head = latency if name == IQR else short.get(name, name)
        found = next((part for part in parts if part.head == head), None)
        if found is None or natural(parts) <= width:
            continue
        if name != IQR:
            parts.remove(found)
            hidden.append(name)
        elif (cells := [text.split(" ")[0] for text in found.cells]) != found.cells:
            found.cells = cells
            hidden.append(name)
    return parts, hidden


def natural(parts: list[Column]) -> int:
    return sum(part.width() for part in parts) + 2 * (len(parts) - 1)


def as_table(records: list[Record], width: int | None = None, runs: str = RUNS) -> Group | Text:
    """Return the table for rich: heads, rows, warnings. `width` is that of the console that will print it; `runs` is
    the folder of the runs, as a user would type it.
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
    if hidden:
        above.append(Text(f"not shown at this width: {', '.join(hidden)}"))
    below = Table.grid(padding=(0, 1, 0, 0))
    for number, line in enumerate(doubts(records, runs), 1):
        below.add_row(Text(f"[{number}]"), Text(line, style="yellow"))
    paired = [Text(line) for line in tips.lines(records)]
    return Group(
        *above, Text(), made, *((Text(), *paired) if paired else ()), *((Text(), below) if below.row_count else ())
    )


def as_text(records: list[Record], width: int = 100, runs: str = RUNS) -> str:
    """Return the table as plain text of at most `width` columns, without colour: for pipes, logs and tests."""
    return tables.plain(as_table(records, width, runs), width) + "\n"

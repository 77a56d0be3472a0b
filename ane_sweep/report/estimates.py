"""The estimated latency of each cell on each chip, with its band, and the ANE's share of the planner cost.

These figures are estimates, not measurements, and every heading says so.
"""

from collections.abc import Sequence

from ane_sweep.bridge.record import Record
from ane_sweep.placement.types import CHOICE_UNKNOWN
from ane_sweep.report import table
from ane_sweep.report.blocks import Grid, Para, Points, Section
from ane_sweep.report.table import Column
from ane_sweep.report.views import Cells

COST = "ANE planner cost % (predicted)"
FOLDS = 24  # a table with more rows than this folds
NOTE = "What the programs would take on each chip, from a model of cost: nothing of it was measured. It rests on:"


def chips(records: Sequence[Record]) -> list[str]:
    """Return the chips that some cell has an estimate for, in the order of the request."""
    found = (m.chip for record in records for m in record.metrics if (m.name, m.kind) == ("latency_ms", "estimated"))
    return list(dict.fromkeys(chip for chip in found if chip))


def band(record: Record, chip: str) -> tuple[float, float | None, float | None] | None:
    """Return (milliseconds, low, high) or None. Either end of the band may be unknown."""
    at, low, high = (record.value(f"latency{end}_ms", "estimated", chip) for end in ("", "_low", "_high"))
    return None if at is None else (at, low, high)


def cost_share(record: Record) -> str:
    """Return the percent of the planner cost that is predicted for the ANE: `50`, or `m1 0, m4 50` if chips differ."""
    return table.by_chip(record, lambda entry: entry.cost_share.ane) or "-"


def text(record: Record, chip: str) -> str:
    """Return `1.35 (0.81 to 3.8)`, `not estimated` if the record says why, or `-`."""
    known = band(record, chip)
    if known is None:
        entries = [entry for entry in record.placed("predicted") if entry.chip == chip]
        return "not estimated" if any(entry.not_estimated for entry in entries) else "-"
    at, low, high = known
    return f"{at:.3g}" + (f" ({low:.2g} to {high:.2g})" if low is not None and high is not None else "")


def whole_table(parts: Sequence[Column], records: Sequence[Record]) -> list[Column]:
    """Return the table's columns with the share of the planner cost and a column a chip before the last one, the status."""
    found = list(parts[:-1])
    if any(cost_share(record) != "-" for record in records):
        found.append(Column(COST, [cost_share(record) for record in records], True))
    for chip in chips(records):
        found.append(Column(head(chip), [text(record, chip).split(" (")[0] for record in records], True))
    return [*found, parts[-1]]


def head(chip: str) -> str:
    return f"{chip} ms (estimated)"


def section(cells: Cells) -> Section | None:
    """Return a table with each cell's estimate and band on every chip, and the sources of each chip's estimates."""
    known, records = chips(cells.records), cells.records
    if not known:
        return None
    rows = [[name, *(text(record, chip) for chip in known)] for name, record in zip(cells.names, records)]
    rows = [row for row in rows if set(row[1:]) != {"-"}]
    fold = f"all {len(rows)} cells" if len(rows) > FOLDS else None
    heads = ["cell", *(f"{chip} ms (estimated: low to high)" for chip in known)]
    grid = Grid(heads, rows, [False] + [True] * len(known), fold=fold)
    rests = dict.fromkeys(m.source for record in records for m in record.metrics if m.kind == "estimated" and m.source)
    points = [*rests, *table.list_not_estimated(records), *(f"all units: {reason}" for reason in _choices(records))]
    return Section("Estimated latency", [Para(NOTE), Points(points), grid])


def _choices(records: Sequence[Record]) -> list[str]:
    """Return the reasons for the GPU or the Neural Engine, and one sentence with all chips for which the choice is unknown."""
    entries = [entry for record in records for entry in record.placed("predicted") if entry.choice]
    unknown = [entry for entry in entries if (entry.choice or "").startswith(CHOICE_UNKNOWN)]
    found = list(dict.fromkeys(entry.choice for entry in entries if entry not in unknown))
    if len({entry.choice for entry in unknown}) > 1:
        names = ", ".join(dict.fromkeys(entry.chip for entry in unknown if entry.chip))
        found.append(
            f"{CHOICE_UNKNOWN} on {names}: figures of one of the two units are not published; shown is the Neural Engine"
        )
    else:
        found += list(dict.fromkeys(entry.choice for entry in unknown))
    return [reason for reason in found if reason]

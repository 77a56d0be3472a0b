"""The section on the estimated latency of each cell on each chip, with its band.

These figures are estimates, not measurements, and every heading says so.
"""

from collections.abc import Sequence

from ane_sweep.bridge.record import Record
from ane_sweep.placement.types import CHOICE_UNKNOWN
from ane_sweep.report import table
from ane_sweep.report.blocks import Grid, Para, Points, Section
from ane_sweep.report.views import Cells
from ane_sweep.results.headline import estimated_chips

FOLDS = 24  # a table with more rows than this folds
NOTE = "What the programs would take on each chip, from a model of cost: nothing of it was measured. It rests on:"


def section(cells: Cells) -> Section | None:
    """Return a table with each cell's estimate and band on every chip, and the sources of each chip's estimates."""
    chips, records = estimated_chips(*cells.records), cells.records
    if not chips:
        return None
    rows = [
        [name, *(table.estimate_text(record, chip) for chip in chips)] for name, record in zip(cells.names, records)
    ]
    rows = [row for row in rows if set(row[1:]) != {"-"}]
    fold = f"all {len(rows)} cells" if len(rows) > FOLDS else None
    heads = ["cell", *(f"{chip} ms (estimated: low to high)" for chip in chips)]
    grid = Grid(heads, rows, [False] + [True] * len(chips), fold=fold)
    rests = dict.fromkeys(m.source for record in records for m in record.metrics if m.kind == "estimated" and m.source)
    points = [*rests, *table.list_not_estimated(records), *(f"all units: {reason}" for reason in _choices(records))]
    return Section("Estimated latency", [Para(NOTE), Points(points), grid])


def _choices(records: Sequence[Record]) -> list[str]:
    """Return the reasons for the GPU or the Neural Engine, and one sentence with all chips for which the choice is unknown."""
    choices = {(entry.choice, entry.chip): None for r in records for entry in r.placed("predicted") if entry.choice}
    reasons = list(dict.fromkeys(choice for choice, _ in choices if choice))
    unknown = [reason for reason in reasons if reason.startswith(CHOICE_UNKNOWN)]
    known = [reason for reason in reasons if reason not in unknown]
    if len(unknown) < 2:
        return known + unknown
    names = ", ".join(dict.fromkeys(chip for choice, chip in choices if chip and choice in unknown))
    every = (
        f"{CHOICE_UNKNOWN} on {names}: figures of one of the two units are not published; shown is the Neural Engine"
    )
    return [*known, every]

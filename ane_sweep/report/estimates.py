"""The section on the estimated latency of each cell on each chip: its band, how far to trust it, its sources.

These figures are estimates, not measurements, and every heading says so.
"""

from collections import Counter
from collections.abc import Sequence

from ane_sweep.bridge.record import Record
from ane_sweep.placement import chips, latency, ordering, sources
from ane_sweep.placement.types import CHOICE_UNKNOWN
from ane_sweep.report import table
from ane_sweep.report.blocks import Grid, Para, Points, Section
from ane_sweep.report.views import Cells
from ane_sweep.results.headline import estimated_chips

FOLDS = 24  # a table with more rows than this folds
BASIS = "how the estimates came about: one line a chip; the method is ane_sweep/placement/METHOD.md"


def section(cells: Cells) -> Section | None:
    """Return a table with each cell's estimate and band on every chip, how far to trust it, and each chip's sources."""
    names, records = estimated_chips(*cells.records), cells.records
    if not names:
        missing = table.list_not_estimated(records)
        return Section("Estimated latency", [Points(missing)]) if missing else None
    rows = [[name, *(table.estimate_text(one, chip) for chip in names)] for name, one in zip(cells.names, records)]
    rows = [row for row in rows if set(row[1:]) != {"-"}]
    fold = f"all {len(rows)} cells" if len(rows) > FOLDS else None
    heads = ["cell", *(f"{chip} ms (estimated: low to high)" for chip in names)]
    grid = Grid(heads, rows, [False] + [True] * len(names), fold=fold)
    points = [*table.list_not_estimated(records), *(f"all units: {reason}" for reason in _choices(records))]
    known = chips.published()
    links = [sources.list_sources(known[name]) if name in known else {} for name in names]
    basis = Points([_basis(records, name) for name in names], fold=BASIS, links=links)
    return Section(
        "Estimated latency", [grid, *([Points(points)] if points else []), *map(Para, explain_trust()), basis]
    )


def explain_trust() -> list[str]:
    """Return how far published figures were from their estimates, and what "sure" and "likely" stand for, with the counts."""
    bands, rule = latency.fitted()["bands"]["ane"], ordering.counted()
    counts = {word: " of ".join(map(str, ordering.count_right(word))) for word in ordering.WORDS}
    program, units, weights = rule["program"], rule["units"], rule["weights"]
    return [
        f"A model of cost gives these; nothing was measured. Of {bands['rows']} published latencies, each estimated without its "
        f"own table, nine in ten were {bands['low']:.2g} to {bands['high']:.2g} times the estimate: the band.",
        f"The order of two estimates for one chip is sure from {program['sure']:g} times on ({counts['sure']} published pairs of "
        f"such a ratio were in that order), likely from {program['likely']:g} ({counts['likely']}), else not told apart "
        f"({counts['not told apart']}). Different units need {units['sure']:g} and {units['likely']:g}; compressed weights are "
        f"likely from {weights['likely']:g}, a further chunk from {rule['chunks']['likely']:g}, and neither is ever sure.",
    ]


def _basis(records: Sequence[Record], chip: str) -> str:
    """Return the rates and the number of figures behind most of a chip's estimates, without what differs by cell."""
    every = (m.source for r in records for m in r.metrics if (m.kind, m.chip) == ("estimated", chip) and m.source)
    found = Counter(source.partition("); ")[0] + ")" * ("); " in source) for source in every)
    line = found.most_common(1)[0][0] if found else chip
    return line + (f" (this of most cells; {len(found) - 1} more in records.jsonl)" if len(found) > 1 else "")


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

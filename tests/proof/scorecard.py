"""The scorecard: each published latency and choice of unit, ours beside it, as a checked dataset.

`python -m tests.proof.scorecard` writes scorecard.csv and SCORECARD.md beside this file anew; `--check FILE` reads rows that somebody
sends for ane_sweep/placement/data/published/latency.csv and says what is wrong with them. Scores are those of
tests/proof/placement; nothing is computed twice.
"""

import argparse
import csv
import io
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ane_sweep.placement import chips, latency
from ane_sweep.terminal import NOT_ALL_OK, OK
from tests.proof.placement import nets, tables, terms

VERSION = 1
FILE, PAGE = Path(__file__).with_name("scorecard.csv"), Path(__file__).with_name("SCORECARD.md")
COLUMNS = (
    "version",
    "table",
    "chip",
    "compute_units",
    "chunks",
    "net",
    "published_ms",
    "ours_ms",
    "part",
    "result",
    "why",
)
TEMPLATE = ("table", "chip", "compute_units", "chunks", "net", "published_ms", "note", "aside")


def list_rows() -> list[dict[str, str]]:
    """Return every published latency with what was estimated of it.

    part: held_out (its table had no part in these terms) or aside (no row of the terms). result: hit or miss (inside
    the band or not), none (not estimated, for the reason in `why`).
    """
    found = {id(one.row): one for one in tables.said()}
    return [_to_row(row, found.get(id(row))) for row in terms.rows()]


def _to_row(row: terms.Row, one: tables.Said | None) -> dict[str, str]:
    ours = one.ours_ms if one else None
    result = "none" if one is None or ours is None else "hit" if one.inside else "miss"
    why = row.aside if one is None else one.why_not or ""
    values = (
        str(VERSION), row.table, row.chip.chip, row.compute_units, str(row.chunks), row.net, f"{row.ms:.6g}",
        "" if ours is None else f"{ours:.6g}", "aside" if one is None else "held_out", result, why,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def to_csv(rows: Sequence[dict[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_page(rows: Sequence[dict[str, str]]) -> str:
    """Return the page: hits and misses of each chip and unit, and every miss."""
    groups = Counter((row["chip"], latency.UNIT_OF[row["compute_units"]], row["result"]) for row in rows)
    lines = [f"| {chip} | {unit} | {groups[chip, unit, 'hit']} | {groups[chip, unit, 'miss']} | {groups[chip, unit, 'none']} |"
             for chip, unit in sorted({key[:2] for key in groups})]  # fmt: skip
    misses = [f"| {row['table']} | {row['chip']} | {row['net']} | {row['published_ms']} | {row['ours_ms']} |"
              for row in rows if row["result"] == "miss"]  # fmt: skip
    totals = Counter(row["result"] for row in rows)
    return "\n".join([
        "# The scorecard", "",
        f"Version {VERSION}, written by `python -m tests.proof.scorecard`; rows: `scorecard.csv`. {len(rows)} published latencies: "
        f"{totals['hit']} inside the band, {totals['miss']} outside, {totals['none']} not estimated. Each estimate is by terms that the "
        "row's table had no part in (where nothing else is published of the unit: that the row had no part in).", "",
        "| chip | unit | inside the band | outside | not estimated |", "| --- | --- | ---: | ---: | ---: |", *lines, "",
        "## Every miss", "", "| table | chip | net | published ms | ours ms |", "| --- | --- | --- | ---: | ---: |", *misses, "",
        "## Send rows", "",
        f"Append to `ane_sweep/placement/data/published/latency.csv` rows with the columns `{','.join(TEMPLATE)}`, run "
        "`python -m tests.proof.scorecard --check FILE` on them, write this page anew, and name the source in the pull request.", "",
    ])  # fmt: skip


def check_rows(path: Path) -> list[str]:
    """Return one sentence for each thing that is wrong with a file of rows for latency.csv."""
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != TEMPLATE:
            return [f"{path}: its columns must be {','.join(TEMPLATE)}"]
        return [f"{path}, line {line}: {wrong}" for line, row in enumerate(reader, 2) for wrong in _find_faults(row)]


def _find_faults(row: dict[str, str]) -> list[str]:
    faults = [f"{name} is empty" for name in TEMPLATE[:6] if not row[name]]
    if row["chip"] not in chips.published():
        faults.append(f"chip={row['chip']} is unknown; `ane-sweep devices` lists the chips")
    if row["compute_units"] not in latency.UNIT_OF:
        faults.append(f"compute_units={row['compute_units']} is unknown; choices: {', '.join(latency.UNIT_OF)}")
    try:
        if not (int(row["chunks"]) >= 1 and 0 < float(row["published_ms"]) < math.inf):
            faults.append("chunks and published_ms must be positive")
    except ValueError:
        faults.append("chunks must be an integer and published_ms a number")
    try:
        nets.sites(row["net"])
    except (LookupError, TypeError, ValueError) as error:
        faults.append(f"net={row['net']} cannot be written by nets.py ({error})")
    return faults


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.proof.scorecard", description=__doc__)
    parser.add_argument("--check", type=Path, metavar="FILE", help="say what is wrong with rows that are sent")
    given = parser.parse_args(words)
    if given.check:
        faults = check_rows(given.check)
        print("\n".join(faults) or f"{given.check}: every row can be used")
        return NOT_ALL_OK if faults else OK
    rows = list_rows()
    FILE.write_text(to_csv(rows), encoding="utf-8")
    PAGE.write_text(to_page(rows), encoding="utf-8")
    print(f"{len(rows)} rows: {FILE.name}, {PAGE.name}")
    return OK


if __name__ == "__main__":
    sys.exit(main())

"""The scorecard: each published figure that a prediction can be held against, ours beside it, as a checked dataset.

`python -m tests.proof.scorecard` writes scorecard.csv and SCORECARD.md beside this file anew (scorecard_rows.py says which rows).
`--check FILE` says what is wrong with rows for ane_sweep/placement/data/published/latency.csv, `--import BUNDLE` prints such rows
from a run that somebody sent (scorecard_sent.py). Scores are those of tests/proof/placement; nothing is computed twice.
"""

import argparse
import csv
import io
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ane_sweep.errors import AneSweepError
from ane_sweep.placement import latency
from ane_sweep.terminal import BAD_CONFIGURATION, NOT_ALL_OK, OK
from tests.proof import scorecard_sent as sent
from tests.proof.scorecard_rows import COLUMNS, VERSION, Row, list_rows, to_texts

FILE, PAGE = Path(__file__).with_name("scorecard.csv"), Path(__file__).with_name("SCORECARD.md")
PARTS = {
    "latency": "Held out: by terms that the row's table had no part in (if alone: the row had none). A hit is inside the band.",
    "choice": "GPU or ANE under compute_units=all, by a ratio fitted without the row.",
    "op_counts": "Seen: our graphs were compared with these. A hit: the shares of ops on the ANE are within 5 points.",
    "support": "Seen: the rules were written with this M4 plan in sight. A row is a program of the study; a hit has every op right.",
    "unit": "Seen, as `support`; the rates are fitted without the program. Where either unit costs the same, both are right.",
    "figure": "Figures that nothing of ours predicts, each with the reason.",
}


def to_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([COLUMNS, *map(to_texts, rows)])
    return text.getvalue()


def to_page(rows: Sequence[Row]) -> str:
    """Return the page: hits and misses by kind, those of latencies by chip and unit, and every miss."""
    kinds = Counter((row.kind, row.result) for row in rows)
    summary = [
        f"| {kind} | {kinds[kind, 'hit']} | {kinds[kind, 'miss']} | {kinds[kind, 'none']} | {what} |"
        for kind, what in PARTS.items()
    ]
    groups = Counter(
        (row.chip, latency.UNIT_OF[row.compute_units], row.result) for row in rows if row.kind == "latency"
    )
    units = [f"| {chip} | {unit} | {groups[chip, unit, 'hit']} | {groups[chip, unit, 'miss']} | {groups[chip, unit, 'none']} |"
             for chip, unit in sorted({key[:2] for key in groups})]  # fmt: skip
    misses = [f"| {row.kind} | {row.source} | {row.chip} | {row.subject} | {row.published} | {row.ours} | {row.part} | {row.why} |"
              for row in rows if row.result == "miss"]  # fmt: skip
    return "\n".join([
        "# The scorecard", "",
        f"Version {VERSION}, written by `python -m tests.proof.scorecard`; {len(rows)} published figures: `scorecard.csv`.", "",
        "| kind | hits | misses | nothing of ours | how far ours knew the figures |", "| --- | ---: | ---: | ---: | --- |", *summary, "",
        "## Latencies by chip and unit", "",
        "| chip | unit | inside the band | outside | not estimated |", "| --- | --- | ---: | ---: | ---: |", *units, "",
        "## Every miss", "", "| kind | source | chip | subject | published | ours | part | why |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |", *misses, "",
        "## Send rows", "",
        f"Rows for `ane_sweep/placement/data/published/latency.csv` have the columns `{','.join(sent.TEMPLATE)}`. From a bundle that "
        "`ane-sweep calibrate run` or `ane-sweep export` wrote: `python -m tests.proof.scorecard --import BUNDLE.zip --table NAME`. "
        "Append them, run `python -m tests.proof.scorecard --check FILE` and `python -m tests.proof.scorecard`, and open a pull request "
        "with the template `rows.md`. CI runs the check.", "",
    ])  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.proof.scorecard", description=__doc__)
    parser.add_argument("--check", type=Path, metavar="FILE", help="say what is wrong with rows that are sent")
    parser.add_argument(
        "--import", dest="bundle", type=Path, metavar="BUNDLE", help="print the rows of a run that is sent"
    )
    parser.add_argument("--table", metavar="NAME", default="", help="with --import: whose figures, and of which day")
    given = parser.parse_args(words)
    if given.bundle and not given.table:
        parser.error("--import needs --table NAME: whose figures these are, and of which day")
    try:
        return _import(given.bundle, given.table) if given.bundle else _check(given.check) if given.check else _write()
    except (AneSweepError, OSError, UnicodeDecodeError) as error:
        print(error, file=sys.stderr)
        return BAD_CONFIGURATION


def _check(path: Path) -> int:
    faults = sent.check_rows(path)
    print("\n".join(faults) or f"{path}: every row can be used")
    return NOT_ALL_OK if faults else OK


def _import(bundle: Path, table: str) -> int:
    rows, left_out = sent.read_bundle(bundle, table)
    writer = csv.DictWriter(sys.stdout, sent.TEMPLATE, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    print("\n".join([f"{len(rows)} rows", *left_out]), file=sys.stderr)
    return OK if rows else NOT_ALL_OK


def _write() -> int:
    rows = list_rows()
    FILE.write_text(to_csv(rows), encoding="utf-8")
    PAGE.write_text(to_page(rows), encoding="utf-8")
    print(f"{len(rows)} rows: {FILE.name}, {PAGE.name}")
    return OK


if __name__ == "__main__":
    sys.exit(main())

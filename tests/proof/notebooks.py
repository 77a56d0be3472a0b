"""The topic of the notebooks, written from data/notebooks.csv: every paragraph of our users' notes that reports a result, the
one command that repeats it, and the published figures that stand beside ours then. Which paragraphs those are: paragraphs.csv.

    python -m tests.proof.notebooks      writes ane_sweep/docs/notebooks.md anew

The rows are ours, in our words; the notes and whose they are: SOURCES. A row's figures are those of data/published.csv that
are of a cell of its command, and of its note.
"""

import csv
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import ane_sweep
from ane_sweep import verbs
from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.key import worded
from ane_sweep.results import published

PACKAGE = Path(ane_sweep.__file__).parent
DATA, TOPIC = PACKAGE / "data" / "notebooks.csv", PACKAGE / "docs" / "notebooks.md"
PARAGRAPHS = PACKAGE / "data" / "paragraphs.csv"
SOURCES = {
    "more-ane-transformers": "https://github.com/smpanaro/more-ane-transformers, src/experiments/NOTES.md, to 10 April 2023",
    "experiments-coreml-ane-distilbert": "https://github.com/anentropic/experiments-coreml-ane-distilbert, README",
    "experiments-coreml-gpt2": "https://github.com/anentropic/experiments-coreml-gpt2, README",
    "coreml102-model-surgery": "the tips of coreml102, Model Surgery",
    "tinygrad-ane": "https://github.com/tinygrad/tinygrad, its notes of the Neural Engine of December 2020",
}
_BEGINS = """# The notebooks

Every experiment of five lab notebooks of others, each with the one command that repeats it.

What a command needs that only hardware gives stands beside it; the rest it shows anywhere. Published: how many figures of that
note stand beside ours in the report, and their milliseconds (or ops). Where there is no hub, add `weights=random`;
`ane-sweep plan ...` needs neither. `python -m tests.proof.notebooks` writes this topic from `ane_sweep/data/notebooks.csv`.
"""


@dataclass(frozen=True)
class Row:
    """One experiment.

    hardware  what of it only hardware shows; "": all of it runs anywhere
    needs     a feature that this copy lacks; "": none
    """

    note: str
    paragraph: str
    what: str
    command: str
    hardware: str
    needs: str

    @property
    def words(self) -> list[str]:
        """Of the command, without its name and a verb."""
        words = shlex.split(self.command)[1:]
        return words[1:] if self.verb else words

    @property
    def verb(self) -> str:
        first = shlex.split(self.command)[1]
        return first if first in verbs.names() else ""


@dataclass(frozen=True)
class Paragraph:
    """One of the notes, by its number under a heading or a day; a table is one, and so are lines that stand together.

    rows       the experiments of what it reports, by the names that they have in the list
    otherwise  what it is where it reports nothing
    """

    note: str
    place: str
    nth: int
    rows: tuple[str, ...]
    otherwise: str


def paragraphs() -> list[Paragraph]:
    with PARAGRAPHS.open(encoding="utf-8", newline="") as file:
        return [
            Paragraph(one["note"], one["place"], int(one["nth"]), _names(one["rows"]), one["otherwise"])
            for one in csv.DictReader(file)
        ]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(" | ")) if text else ()


def rows() -> list[Row]:
    with DATA.open(encoding="utf-8", newline="") as file:
        return [Row(**line) for line in csv.DictReader(file)]


def beside(row: Row, cells: list[Cell]) -> Iterator[published.Row]:
    """The published figures of its note that are of one of the cells."""
    for one in published.rows():
        if one.request and _is_of(one["source"], row) and any(_matches(one, cell) for cell in cells):
            yield one


def _is_of(source: str, row: Row) -> bool:
    if not source.partition(" ")[0].endswith(row.note):
        return row.note == "experiments-coreml-ane-distilbert" and source.startswith("apple/ml-ane-transformers")
    day, _, month = row.paragraph.partition(",")[0].partition(" ")
    months = {"March 2023": "03", "April 2023": "04"}
    return (
        month not in months
        or source.endswith(f"2023-{months[month]}-{int(day):02d}")
        or f"-{months[month]}-30/31" in source
    )


def _matches(one: published.Row, cell: Cell) -> bool:
    wanted = {**published.DEFAULTS, **one.request}
    same = all(worded(cell.value(key)) == worded(value) for key, value in wanted.items() if key != "runtime")
    return same and cell.runtime in ("auto", one.request.get("runtime", "auto"), "coreml")


def cells_of(row: Row) -> list[Cell]:
    """Of its command; none where it is of a verb, or waits for something. Raises ConfigError."""
    from ane_sweep.planner import config

    return config.load(row.words).cells if not (row.verb or row.needs or "./" in row.command) else []


def text(cells: Callable[[Row], list[Cell]] = cells_of) -> str:
    """The topic."""
    made = [_BEGINS]
    for note, source in SOURCES.items():
        made.append(
            f"\n## {note}\n\n{source}\n\n| where | what | command | published | only hardware shows |\n| --- | --- | --- | --- | --- |\n"
        )
        for row in (row for row in rows() if row.note == note):
            figures = _figures(list(beside(row, cells(row))))
            made.append(f"| {row.paragraph} | {row.what} | `{row.command}` | {figures} | {row.hardware} |\n")
    return "".join(made)


def _figures(found: list[published.Row]) -> str:
    said = [one.figures.get("predict_ms") or one.figures.get("load_ms") or one.figures.get("ops_ane") for one in found]
    shown = [f"{value:g}" for value in dict.fromkeys(said) if value is not None]
    return f"{len(found)}: {', '.join(shown[:8])}{' ...' if len(shown) > 8 else ''}" if found else ""


if __name__ == "__main__":
    TOPIC.write_text(text(), encoding="utf-8")

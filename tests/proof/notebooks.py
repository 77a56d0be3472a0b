"""The topic of the notebooks, written from data/notebooks.csv: every paragraph of our users' notes that reports a result, the
one command that repeats it, and the published figures that stand beside ours then. Which paragraphs those are: paragraphs.csv.

    python -m tests.proof.notebooks      writes tests/proof/NOTEBOOKS.md anew

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
from ane_sweep.bridge import record
from ane_sweep.bridge.cell import Cell
from ane_sweep.results import published

PACKAGE = Path(ane_sweep.__file__).parent
DATA, TOPIC = PACKAGE / "data" / "notebooks.csv", Path(__file__).parent / "NOTEBOOKS.md"
PARAGRAPHS = PACKAGE / "data" / "paragraphs.csv"
SOURCES = {
    "more-ane-transformers": "https://github.com/smpanaro/more-ane-transformers, src/experiments/NOTES.md, to 10 April 2023",
    "experiments-coreml-ane-distilbert": "https://github.com/anentropic/experiments-coreml-ane-distilbert, README",
    "experiments-coreml-gpt2": "https://github.com/anentropic/experiments-coreml-gpt2, README",
    "coreml102-model-surgery": "the tips of coreml102, Model Surgery",
    "tinygrad-ane": "https://github.com/tinygrad/tinygrad, its notes of the Neural Engine of December 2020",
}
_SHOWN = {
    "predict_ms": "",
    "load_ms": "load ",
    "ops_total": "ops ",
    "ops_ane": "ops on the ANE ",
    "psnr_db": "PSNR ",
    "size_mb": "MB ",
    "compile_ms": "compile ",
    "ops_cpu": "ops on the CPU ",
    "ops_gpu": "ops on the GPU ",
}
_BEGINS = """# The notebooks

Every experiment of five lab notebooks of others, each with the one command that repeats it.

What a command needs that only hardware gives stands beside it; the rest it shows anywhere. Published: how many rows of that
note's figures the report shows beside ours, and the milliseconds of each (else its load, its ops, its MB). Without a hub, add
`weights=random`; without an iPhone, leave `device=usb` out; `ane-sweep plan ...` needs no weights.
`python -m tests.proof.notebooks` writes this page from `ane_sweep/data/notebooks.csv`.
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
    """Yield the published rows of the note that the report shows beside one of the cells: `published.Row.matches`."""
    requests = [(record.flat_request(cell.as_dict()), cell.runtime) for cell in cells]
    for one in published.rows():
        if one.figures and _is_of(one["source"], row) and any(one.matches(*request) for request in requests):
            yield one


def _is_of(source: str, row: Row) -> bool:
    """Return True if a published row is of the row's note, and of its day where the note has days."""
    if not source.partition(" ")[0].endswith(row.note):
        return row.note == "experiments-coreml-ane-distilbert" and source.startswith("apple/ml-ane-transformers")
    day, _, month = row.paragraph.partition(",")[0].partition(" ")
    months = {"March 2023": "03", "April 2023": "04"}
    return (
        month not in months
        or source.endswith(f"2023-{months[month]}-{int(day):02d}")
        or f"-{months[month]}-30/31" in source
    )


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
    """Return the number of published rows and the first figure that each has, in the order of _SHOWN; at most eight."""
    shown = list(dict.fromkeys(headline(one) for one in found))
    return f"{len(found)}: {', '.join(shown[:8])}{' ...' if len(shown) > 8 else ''}" if found else ""


def headline(one: published.Row) -> str:
    """Return the figure that stands for a published row, e.g. `283`, `load 2700` or `ops 606`."""
    name, words = next((name, words) for name, words in _SHOWN.items() if name in one.figures)
    return words + published.figure_text(one.figures[name])


if __name__ == "__main__":
    TOPIC.write_text(text(), encoding="utf-8")

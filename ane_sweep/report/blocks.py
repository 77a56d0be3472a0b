"""The blocks that a report is made of, and the two ways to write them down. Every text is escaped: HTML by its templates, Markdown here."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ane_sweep.outward import markdown as escaped
from ane_sweep.report import templating


@dataclass
class Para:
    """A line or two of text."""

    text: str


@dataclass
class Points:
    """A list; a numbered one can be referred to."""

    items: list[str]
    numbered: bool = False


@dataclass
class Grid:
    """A table. `cells` numbers the rows that are cells of the sweep, so that filters and plots find them."""

    heads: list[str]
    rows: list[list[str]]
    numeric: list[bool]
    cells: list[int] | None = None
    fold: str | None = None  # what to click on to see it; None: it is open
    tones: list[str] = field(default_factory=list)  # a status per row, which colours its last column
    doubts: list[list[int]] = field(
        default_factory=list
    )  # numbers of the doubts of each row, which stand in that column


@dataclass
class BestRow:
    """A winner: its work (empty if there is only one), its goals, its cell and the warnings about it."""

    work_name: str
    goals: str
    name: str
    note: str
    figures: list[str] = field(default_factory=list)
    cell: int = 0
    work: int = 0
    sound: bool = True


@dataclass
class Best:
    """The best cells, which the page's script makes again at each limit. `heads` names their figures."""

    heads: list[str]
    rows: list[BestRow]

    @property
    def several(self) -> bool:
        return any(row.work_name for row in self.rows)


@dataclass
class Plots:
    """SVG texts with a caption each, side by side if there is room."""

    items: list[tuple[str, str]]
    legend: list[tuple[str, str]] = field(default_factory=list)  # (word, the CSS variable of its colour)
    legend_head: str = ""
    works: list[int] = field(
        default_factory=list
    )  # the number of the work of each, where they are of one: one is shown


@dataclass
class Widget:
    """A part of the page that its script drives: a macro of blocks.html.j2; `text` is its place-holder in Markdown."""

    name: str
    values: list[tuple[Any, ...]]
    text: str = ""


Block = Para | Points | Grid | Best | Plots | Widget


@dataclass
class Section:
    title: str
    blocks: list[Block]
    kind: str = ""  # a class of page.css

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-")


def html(block: Block) -> str:
    """Return one block as HTML."""
    name = block.name if isinstance(block, Widget) else type(block).__name__.lower()
    return str(getattr(templating.macros("blocks.html.j2"), name)(block))


def series_legend(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return (word, colour) pairs; from the ninth word on they share one colour."""
    shown = list(words) if len(words) <= 9 else [*words[:8], f"{len(words) - 8} more"]
    return [(word, f"--s{n}") for n, word in enumerate(shown)]


def markdown(block: Block) -> str:
    """Return one block as Markdown. Plots are left to the HTML report; the figures behind them stand in the tables."""
    match block:
        case Para(text) | Widget(_, _, text):
            return f"{escaped(text)}\n\n" if text else ""
        case Points(items, numbered):
            return (
                "".join(f"{f'{n}.' if numbered else '-'} {escaped(item)}\n" for n, item in enumerate(items, 1)) + "\n"
            )
        case Best(heads, rows):
            first = ["of"] if block.several else []
            told = [(row, [row.work_name] if first else []) for row in rows]
            texts = [[*work, row.goals, row.name, *row.figures, row.note or "-"] for row, work in told]
            numeric = [False] * (len(first) + 2) + [True] * len(heads) + [False]
            return markdown(Grid([*first, "best", "cell", *heads, "note"], texts, numeric))
        case Grid(heads, rows, numeric):
            return "".join(_pipes([heads, ["---:" if n else "---" for n in numeric], *rows])) + "\n"
        case Plots():
            return ""


def _pipes(rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(text if i == 1 else escaped(text) for text in row)} |\n" for i, row in enumerate(rows)]

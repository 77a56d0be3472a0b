"""What a report is made of, and the two ways to write it down. Every text is escaped here."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from ane_sweep.outward import markdown as escaped


@dataclass
class Para:
    """A line or two of text."""

    text: str


@dataclass
class Points:
    """A list."""

    items: list[str]


@dataclass
class Grid:
    """A table. `cells` numbers the rows that are cells of the sweep, so that filters and plots find them."""

    heads: list[str]
    rows: list[list[str]]
    numeric: list[bool]
    cells: list[int] | None = None
    fold: str | None = None  # what to click on to see it; None: it is open
    tones: list[str] = field(default_factory=list)  # a status per row, which colours its last column


@dataclass
class Plots:
    """SVG texts of ours with a caption each, side by side where there is room."""

    items: list[tuple[str, str]]
    legend: list[tuple[str, str]] = field(default_factory=list)  # (word, the CSS variable of its colour)
    legend_head: str = ""


@dataclass
class Widget:
    """HTML of ours that the page's script brings to life; `text` is what Markdown says in its place."""

    html: str
    text: str


Block = Para | Points | Grid | Plots | Widget


@dataclass
class Section:
    title: str
    blocks: list[Block]

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-")


def html(block: Block) -> str:
    """One block as HTML."""
    match block:
        case Para(text):
            return f"<p>{escape(text)}</p>\n"
        case Points(items):
            return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>\n"
        case Grid():
            return _table(block)
        case Plots():
            return _plots(block)
        case Widget(text):
            return text


def _table(grid: Grid) -> str:
    heads = "".join(
        f"<th{' class=n' if number else ''} scope=col tabindex=0>{escape(head)}</th>"
        for head, number in zip(grid.heads, grid.numeric)
    )
    lines = []
    for index, row in enumerate(grid.rows):
        marks = [
            " class=n" if number else " class=text" if len(text) > 40 else "" for number, text in zip(grid.numeric, row)
        ]
        if grid.tones:
            marks[-1] = f' class="status {escape(grid.tones[index])}"'
        cell = f" data-cell={grid.cells[index]}" if grid.cells is not None else ""
        lines.append(f"<tr{cell}>" + "".join(f"<td{m}>{escape(text)}</td>" for m, text in zip(marks, row)) + "</tr>\n")
    kind = ' class="cells"' if grid.cells is not None else ""
    table = (
        f"<div class=wide><table{kind}><thead><tr>{heads}</tr></thead><tbody>\n{''.join(lines)}</tbody></table></div>\n"
    )
    return f"<details><summary>{escape(grid.fold)}</summary>\n{table}</details>\n" if grid.fold else table


def _plots(plots: Plots) -> str:
    keys = "".join(f"<span><i style='background:var({colour})'></i>{escape(w)}</span>" for w, colour in plots.legend)
    legend = f"<p class=legend>{escape(plots.legend_head)} {keys}</p>\n" if keys else ""
    inside = "".join(
        f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>\n" for svg, caption in plots.items
    )
    return f"{legend}<div class=plots>\n{inside}</div>\n"


def series_legend(words: Sequence[str]) -> list[tuple[str, str]]:
    """A colour a word; from the ninth on they share one."""
    shown = list(words) if len(words) <= 9 else [*words[:8], f"{len(words) - 8} more"]
    return [(word, f"--s{n}") for n, word in enumerate(shown)]


def markdown(block: Block) -> str:
    """One block as Markdown. Plots are left to the HTML report; the figures behind them stand in the tables."""
    match block:
        case Para(text) | Widget(_, text):
            return f"{escaped(text)}\n\n" if text else ""
        case Points(items):
            return "".join(f"- {escaped(item)}\n" for item in items) + "\n"
        case Grid(heads, rows, numeric):
            return "".join(_pipes([heads, ["---:" if n else "---" for n in numeric], *rows])) + "\n"
        case Plots():
            return ""


def _pipes(rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(text if i == 1 else escaped(text) for text in row)} |\n" for i, row in enumerate(rows)]

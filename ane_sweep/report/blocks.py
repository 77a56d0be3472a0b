"""The blocks that a report consists of, and the two ways to write them. Every text is escaped: HTML by its templates, Markdown here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ane_sweep.bridge.metrics import METRICS
from ane_sweep.outward import markdown as escaped

_SHARES = {f"ANE {word} % ({kind})": f"% ANE {word}" for word in ("ops", "cost") for kind in ("predicted", "planned")}


@dataclass
class Para:
    """A paragraph of text."""

    text: str


@dataclass
class Points:
    """A list; the items of a numbered one can be referred to.

    fold   the words to click on to open it; "": it is open
    links  {words: address} behind each item
    """

    items: list[str]
    numbered: bool = False
    fold: str = ""
    links: list[dict[str, str]] = field(default_factory=list)


@dataclass
class Grid:
    """A table.

    cells   numbers of the cells that the rows show, for filters and plots
    fold    the words to click on to open it; None: it is open
    tones   a status per row, for the colour of its column `status`
    doubts  numbers of the warnings for each row, shown in that column
    """

    heads: list[str]
    rows: list[list[str]]
    numeric: list[bool]
    cells: list[int] | None = None
    fold: str | None = None
    tones: list[str] = field(default_factory=list)
    status: int = -1
    doubts: list[list[int]] = field(default_factory=list)


@dataclass
class BestRow:
    """A winner: its group of comparable cells (empty if there is only one group), its goals, its cell and the warnings about it."""

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
    """The best cells, which the page's script recomputes at each limit. `heads` names their figures."""

    heads: list[str]
    rows: list[BestRow]

    @property
    def several(self) -> bool:
        return any(row.work_name for row in self.rows)


@dataclass
class Plots:
    """SVG texts with a caption each, side by side if there is room.

    legend  (word, the CSS variable of its colour)
    works   the number of each plot's group of comparable cells, if it has one: the page shows one group at a time
    """

    items: list[tuple[str, str]]
    legend: list[tuple[str, str]] = field(default_factory=list)
    legend_head: str = ""
    works: list[int] = field(default_factory=list)


@dataclass
class Widget:
    """A part of the page that its script controls: a macro of blocks.html.j2; `text` replaces it in Markdown."""

    name: str
    values: list[tuple[object, ...]]
    text: str = ""


Block = Para | Points | Grid | Best | Plots | Widget


@dataclass
class Section:
    title: str
    blocks: Sequence[Block]
    kind: str = ""  # a class of page.css

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-")


@cache
def environment() -> Environment:
    """Return the only environment that makes HTML: templates/, in which every value is escaped unless a template says `safe`."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    known = {spec.column: spec.shown_unit for spec in METRICS.values() if not spec.heading}
    found.globals["units"] = {head: unit for head, unit in known.items() if unit} | _SHARES
    return found


@cache
def macros(name: str) -> Mapping[str, Callable[..., str]]:
    """Return a template's macros as functions."""
    return vars(environment().get_template(name).module)


def html(block: Block) -> str:
    """Return one block as HTML."""
    name = block.name if isinstance(block, Widget) else type(block).__name__.lower()
    return str(macros("blocks.html.j2")[name](block))


def series_legend(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return (word, colour) pairs; from the ninth word on they share one colour."""
    shown = list(words) if len(words) <= 9 else [*words[:8], f"{len(words) - 8} more"]
    return [(word, f"--s{n}") for n, word in enumerate(shown)]


def figure_text(value: float | None, digits: int = 4) -> str:
    """Return a figure with its significant digits, `-` for None."""
    return "-" if value is None else f"{value:.{digits}g}"


def markdown(block: Block) -> str:
    """Return one block as Markdown. Plots are only in the HTML report; the tables have their figures."""
    match block:
        case Para(text) | Widget(_, _, text):
            return "".join(f"{escaped(part)}\n\n" for part in text.split("\n\n") if part)
        case Points(items, numbered, _, links):
            behind = ["".join(f"; {escaped(name)}: {url}" for name, url in one.items()) for one in links]
            made = (escaped(item) + more for item, more in zip_longest(items, behind, fillvalue=""))
            return "".join(f"{f'{n}.' if numbered else '-'} {text}\n" for n, text in enumerate(made, 1)) + "\n"
        case Best(heads, rows):
            first = ["of"] if block.several else []
            texts = [
                [*(row.work_name for _ in first), row.goals, row.name, *row.figures, row.note or "-"] for row in rows
            ]
            numeric = [False] * (len(first) + 2) + [True] * len(heads) + [False]
            return markdown(Grid([*first, "best", "cell", *heads, "note"], texts, numeric))
        case Grid(heads, rows, numeric):
            rules = ["---:" if n else "---" for n in numeric]
            lines = [list(map(escaped, heads)), rules, *(list(map(escaped, row)) for row in rows)]
            return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"
        case Plots():
            return ""

"""Columns of text, laid out by rich without colour or box, so that pipes, logs and grep get plain lines."""

import io
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_WIDE = 100_000  # columns: nothing is folded


def aligned(
    rows: Iterable[Sequence[str | Text]], *, heads: Sequence[str] = (), right: Collection[int] = (), width: int = _WIDE
) -> str:
    """Return rows under `heads`, two spaces between columns; columns numbered in `right` are right-aligned.

    Beyond `width` characters, the last column wraps within itself.
    """
    lines = [list(row) for row in ([heads] if heads else []) + list(rows)]
    table = Table.grid(padding=(0, 2, 0, 0))
    last = max(map(len, lines), default=0) - 1
    for number in range(last + 1):
        is_whole = number < last or width == _WIDE
        table.add_column(justify="right" if number in right else "left", no_wrap=is_whole, overflow="fold")
    for line in lines:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in line))
    return plain(table, width)


def plain(what: RenderableType, width: int) -> str:
    """Convert rich's output to text without colour and without trailing spaces."""
    buffer = io.StringIO()
    console = Console(
        file=buffer, width=width, color_system=None, force_terminal=False, force_jupyter=False, highlight=False
    )
    console.print(what)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())

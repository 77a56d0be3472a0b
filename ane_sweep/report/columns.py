"""Columns of the table of a sweep, and those of what Core ML planned and took to load and compile."""

from collections.abc import Sequence
from dataclasses import dataclass

from ane_sweep.bridge.record import Record

CHECK, OTHER_CHIPS, LOADED, MINOR = 1, 2, 3, 4  # ranks of columns that a narrow terminal drops


@dataclass
class Column:
    """One column of text; `cells` has an entry per record.

    narrow      heading for a narrow terminal, which may have several lines; empty: the heading with a word a line
    drop_order  rank in the order in which a narrow terminal drops columns, from 1; 0: never dropped
    """

    head: str
    cells: list[str]
    numeric: bool = False
    narrow: str = ""
    drop_order: int = 0

    def width(self) -> int:
        return max(len(text) for text in (*self.head.split("\n"), *self.cells))


def some_column(head: str, texts: list[str], narrow: str = "", drop_order: int = 0) -> list[Column]:
    """Return a column of figures in a list, or an empty list if no cell has the figure."""
    return [Column(head, texts, True, narrow, drop_order)] if set(texts) - {"-"} else []


def unit_columns(records: Sequence[Record]) -> list[Column]:
    """Return the ops by unit that Core ML planned, and the seconds of a load and of a compilation, where records have them."""
    plans = [next((entry.ops for entry in record.placed("planned") if entry.ops.total), None) for record in records]
    ops = ["-" if n is None else f"{n.ane}/{n.gpu}/{n.cpu}" for n in plans]
    found = some_column("ops ANE/GPU/CPU (planned)", ops, drop_order=LOADED)
    for head, name, scale in (("load s, cold", "load_cold_ms", 1000), ("compile s", "compile_s", 1)):
        values = [record.read(name) for record in records]
        texts = ["-" if value is None else f"{value / scale:.3g}" for value in values]
        found += some_column(head, texts, drop_order=LOADED)
    return found

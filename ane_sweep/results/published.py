"""Figures that others have published (data/published.csv), and which of them are of the same request as a record.

What a column means, and on what terms the figures are quoted: data/PUBLISHED.md.
"""

import csv
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ane_sweep.bridge.cell import DECLARED
from ane_sweep.bridge.key import worded
from ane_sweep.bridge.record import Record, flat_cell
from ane_sweep.bridge.runtimes import traits

DATA = Path(__file__).parents[1] / "data" / "published.csv"
FIGURES = ("ops_cpu", "ops_gpu", "ops_ane", "ops_total", "predict_ms", "load_ms", "compile_ms", "psnr_db", "size_mb")
# A request that does not name one of these means its default; what it does not name else (seq_len, target) may be any.
DEFAULTS: dict[str, Any] = {
    "precision": "fp16",
    "chunks": 1,
    "cuts": None,
    "pieces": None,
    **{name: axis.plain for name, axis in DECLARED.items() if axis.enters},
}


@dataclass(frozen=True)
class Row:
    """One published figure or several of one run. `request` is the cell it is of, {} where it is of none of ours."""

    texts: dict[str, str]
    figures: dict[str, float]
    request: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.texts[name]

    def matches(self, record: Record, cell: dict[str, Any] | None = None) -> bool:
        """Whether the record is of this row's request; `cell`: its flat cell, where it is known. Compute units count under every
        runtime: what we estimate and predict beside a published figure depends on them wherever a program runs."""
        if not self.request:
            return False
        cell = flat_cell(record) if cell is None else cell
        wanted: dict[str, Any] = {**{k: v for k, v in DEFAULTS.items() if k in cell}, **self.request}
        if "runtime" not in wanted and traits(record.realised.get("runtime")).needs == "checkpoint":
            return False
        return all(worded(cell.get(key)) == worded(value) for key, value in wanted.items())


def told_by(record: Record, cell: dict[str, Any]) -> tuple[Any, ...]:
    """What of a record decides which rows match it."""
    return *(worded(cell[key]) if key in cell else None for key in _asked()), record.realised.get("runtime")


@cache
def _asked() -> tuple[str, ...]:
    """Whatever some row's request names or means."""
    return tuple(dict.fromkeys([*DEFAULTS, *(key for row in rows() for key in row.request)]))


@cache
def rows() -> tuple[Row, ...]:
    """All rows, in the order of the file."""
    with DATA.open(encoding="utf-8", newline="") as file:
        return tuple(_row(line) for line in csv.DictReader(file))


def _row(line: dict[str, str]) -> Row:
    figures = {name: float(line[name]) for name in FIGURES if line[name]}
    request = dict(word.split("=", 1) for word in line["cell"].split())
    return Row({name: text for name, text in line.items() if name not in FIGURES}, figures, request)

"""Published figures of others (data/published.csv), and the rule for which of them belong to the same request as a
record.

data/PUBLISHED.md explains the columns and the terms of quoting.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ane_sweep.bridge.cell import DECLARED
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.runtimes import traits
from ane_sweep.csv_files import read_csv

DATA = Path(__file__).parents[1] / "data" / "published.csv"
FIGURES = ("ops_cpu", "ops_gpu", "ops_ane", "ops_total", "predict_ms", "load_ms", "compile_ms", "psnr_db", "size_mb")
# A request that does not name one of these means its default; what it does not name else (seq_len, target) may be any.
DEFAULTS: dict[str, object] = {"precision": "fp16", "chunks": 1, "copies": 1}
DEFAULTS |= dict.fromkeys(("copies_sizes", "cuts", "pieces"))
DEFAULTS |= {name: axis.plain for name, axis in DECLARED.items() if axis.enters}


@dataclass(frozen=True)
class Row:
    """One published run with its figures. `request` is the corresponding cell, or {} without one."""

    texts: dict[str, str]
    figures: dict[str, float]
    request: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.texts[name]

    def matches(self, cell: dict[str, object], runtime: str | None) -> bool:
        """Return True if a cell requests the setting that this row was measured in.

        cell     the flat request: `record.flat_request`
        runtime  the cell's actual or planned runtime; None if unknown. PyTorch's figures match only a cell that names
                 PyTorch, and Core ML's only other cells. Compute units must agree under every runtime, as estimates
                 depend on them.
        """
        if not self.request:
            return False
        wanted: dict[str, object] = {**{k: v for k, v in DEFAULTS.items() if k in cell}, **self.request}
        if "runtime" not in wanted and traits(runtime).needs == "checkpoint":
            return False
        return all(format_value(cell.get(key)) == format_value(value) for key, value in wanted.items())


def matching_key(cell: dict[str, object], runtime: str | None) -> tuple[str | None, ...]:
    """Return the values that `Row.matches` depends on: cells with equal keys match the same rows."""
    return *(format_value(cell[key]) if key in cell else None for key in _requested_names()), runtime


def figure_text(value: float) -> str:
    """Return a published figure as its source writes it, without an exponent."""
    return f"{value:.10g}"


@cache
def _requested_names() -> tuple[str, ...]:
    """Return the axis names that requests of published rows use or imply."""
    return tuple(dict.fromkeys([*DEFAULTS, *(key for row in rows() for key in row.request)]))


@cache
def rows() -> tuple[Row, ...]:
    """Return all rows, in the order of the file."""
    return tuple(map(_row, read_csv(DATA)))


def _row(line: dict[str, str]) -> Row:
    figures = {name: float(line[name]) for name in FIGURES if line[name]}
    request = dict(word.split("=", 1) for word in line["cell"].split())
    return Row({name: text for name, text in line.items() if name not in FIGURES}, figures, request)

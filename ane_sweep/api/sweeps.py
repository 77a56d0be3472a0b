"""A plan, a sweep and its records as a notebook has them. The engine is the command line's own."""

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ane_sweep import engine
from ane_sweep.api import asked, inline
from ane_sweep.bridge import record
from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.record import Record
from ane_sweep.errors import ConfigError
from ane_sweep.folders import outputs_folder
from ane_sweep.planner import overview
from ane_sweep.report import document, page, screen
from ane_sweep.store import runs
from ane_sweep.terminal import OK

if TYPE_CHECKING:
    import pandas

_ONE = threading.Lock()  # a sweep has the machine to itself: another thread's waits
_WIDTH = 120


@dataclass(frozen=True)
class Planned:
    """What a matrix would run. As text: the cells, what they share, what it costs.

    cells     the requests, in order
    refused   cell key -> why that combination is impossible
    """

    plan: Plan
    text: str

    @property
    def cells(self) -> list[Cell]:
        return self.plan.cells

    @property
    def refused(self) -> dict[str, str]:
        return self.plan.refused

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


@dataclass(frozen=True)
class Sweep:
    """A finished sweep.

    path      its folder, outputs/runs/<stamp>
    records   one a cell, in the order asked for (ane_sweep.bridge.record.Record)
    said      sentences about the run: its plan, what it went on with, and doubts (a tracker out of reach)
    """

    path: Path
    records: list[Record]
    said: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all is well, as exit code 0 says it: no cell failed, and none deserves doubt."""
        return engine.exit_code(self.records) == OK

    def frame(self) -> "pandas.DataFrame":
        """One row a cell, its index the cell's key: the axes that vary, with the model; `status` and `reason`; and every
        figure under its kind, a chip's with the chip: `measured.latency_median_ms`, `predicted.m4.ops_ane`."""
        import pandas

        cells = [record.flat_cell(one) for one in self.records]
        axes = list(dict.fromkeys(["model", *record.varying_names(cells)]))
        rows = [
            {record.as_typed(axis): cell.get(axis) for axis in axes}
            | {"status": str(one.status), "reason": one.reason}
            | {metric.label: metric.value for metric in one.metrics}
            for one, cell in zip(self.records, cells)
        ]
        return pandas.DataFrame(rows, index=pandas.Index([one.cell_key for one in self.records], name="cell_key"))

    def report(self, height: int = 800) -> inline.Page:
        """The report, which Jupyter shows in place, `height` pixels high; `.save(path)` writes it as one HTML file."""
        return inline.Page(page.as_html(document.Sweep.read(self.path)), height)

    def __repr__(self) -> str:
        doubts = [line for line in self.said if line.startswith("doubt: ")]
        return "\n".join([screen.as_text(self.records, width=_WIDTH), *doubts, f"records: {self.path}"])


def plan(words: Iterable[str], axes: Mapping[str, Any]) -> Planned:
    request, _ = asked.request(words, axes)
    made, text, _ = overview.make_plan_view(request, outputs_folder(request.settings["out"]))
    return Planned(made, text)


def sweep(words: Iterable[str], axes: Mapping[str, Any]) -> Sweep:
    request, args = asked.request(words, axes)
    if request.settings["nightly"]["enabled"]:
        raise ConfigError("nightly.enabled: a night is run by the command line (ane_sweep/docs/nightly.md)")
    audience = inline.Reader()
    with _ONE:
        folder, records = engine.sweep(request, outputs_folder(request.settings["out"]), args, audience)
    return Sweep(folder, records, audience.said)


def load(run: "str | os.PathLike[str]", out: "str | os.PathLike[str] | None") -> Sweep:
    named = Path(run)
    if not (named / record.FILE_NAME).is_file():
        named = runs.find_run(outputs_folder(None if out is None else os.fspath(out)), os.fspath(run)).folder
    return Sweep(named.absolute(), record.read_records(named))

"""Objects for notebooks: a plan, a sweep and its records. They use the same engine as the command line."""

import html
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ane_sweep import engine
from ane_sweep.api import asked, inline
from ane_sweep.bridge import metrics, record
from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.metrics import METRICS
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.record import Record
from ane_sweep.bundles import delivery
from ane_sweep.compare import judge, show, sides
from ane_sweep.errors import ConfigError
from ane_sweep.folders import outputs_folder
from ane_sweep.planner import compose, config, free, overview
from ane_sweep.report import document, page, screen, table
from ane_sweep.results import answer as results_answer
from ane_sweep.results import headline
from ane_sweep.results.difference import LEAST_PERCENT, LEVEL
from ane_sweep.search import answer, goal
from ane_sweep.search import run as searching
from ane_sweep.store import runs
from ane_sweep.store.cache import open_store
from ane_sweep.terminal import OK, format_path
from ane_sweep.tracking import naming

if TYPE_CHECKING:
    import pandas

_ONE = threading.Lock()  # a sweep has the machine to itself: another thread's waits
_WIDTH = 100


@dataclass(frozen=True)
class Planned:
    """The plan of a matrix. As text it shows the cells, their shared work, and the cost.

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
    records   one per cell, in the requested order (ane_sweep.bridge.record.Record)
    said      messages about the run: its plan, continued work, and warnings (a tracker out of reach)
    """

    path: Path
    records: list[Record]
    said: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return True for exit code 0: no cell failed, and none has a warning."""
        return engine.exit_code(self.records) == OK

    def frame(self) -> "pandas.DataFrame":
        """Return a data frame with one row per cell, named by its axes: `minilm chunks=2`.

        The columns: the axes that vary, with the model; the headline latency with its kind, ends and chip; the shares of
        the ops and of the cost on the Neural Engine, predicted for the chip that the user ships for; PSNR, size and
        `status`; then every figure under its kind, a chip's with the chip (`measured.latency_median_ms`,
        `predicted.m4.ops_ane`); `reason` and `cell_key`.
        """
        import pandas

        cells = [record.flat_cell(one) for one in self.records]
        axes = list(dict.fromkeys(["model", *record.varying_names(cells)]))
        figures = dict.fromkeys(metric.label for one in self.records for metric in one.metrics)
        rows = [
            {record.as_typed(axis): cell.get(axis) for axis in axes}
            | _weigh(one)
            | figures
            | {metric.label: metric.value for metric in one.metrics}
            | {"reason": one.reason, "cell_key": one.cell_key}
            for one, cell in zip(self.records, cells)
        ]
        names = [naming.words(one, axes, {}) for one in self.records]
        return pandas.DataFrame(rows, index=pandas.Index(names, name="cell"))

    def get(self, folder: "str | os.PathLike[str]", **axes: Any) -> list[Path]:
        """Copy one cell's packages into a new folder: `found.get("./minilm", variant="split_einsum", chunks=2)`.

        Returns their paths in the order in which they run. Raises ConfigError if the axes mean several cells, or none.
        """
        chosen = ",".join(f"{axis}={format_value(value)}" for axis, value in axes.items())
        return get(f"{self.path}:{chosen}" if chosen else str(self.path), folder, self.path.parent.parent)

    def compare(self, before: "str | os.PathLike[str] | Sweep", *, across_hosts: bool = False) -> "Compared":
        """Return the changes from an earlier run to this one: timings by a test, everything else by its own measure.

        before        a sweep, or a word as in `ane-sweep compare`: "good", a run's name or folder, "NAME:chunks=1"
        across_hosts  compare sweeps of different hosts, by the figures that do not depend on the host

        Raises RunNotFound, and ConfigError if the two cannot be compared.
        """
        first, second = str(before.path) if isinstance(before, Sweep) else os.fspath(before), str(self.path)
        found = judge.comparison(self.path.parent.parent, first, second)
        if reason := judge.not_comparable(found, across_hosts=across_hosts):
            raise ConfigError(reason.replace("--across-hosts compares", "across_hosts=True compares"))
        headline = show.verdict(found)
        text = show.as_markdown(found, first, second, headline=headline, level=LEVEL, least_percent=LEAST_PERCENT)
        return Compared(found, text)

    def _repr_html_(self) -> str:
        """Return the answer and the table of the sweep, as Jupyter shows them."""
        runs = format_path(Path(self.path).parent)
        parts = table.list_columns(self.records, estimates=True) if self.records else []
        heads = "".join(f"<th>{html.escape(part.head)}</th>" for part in parts)
        rows = ("".join(f"<td>{html.escape(part.cells[n])}</td>" for part in parts) for n in range(len(self.records)))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        answered = self._answer(runs) or ["no records"]
        first, *others = map(html.escape, answered)
        above = "".join(f"<div>{line}</div>" for line in [f"<b>{first}</b>", *others])
        below = [*screen.list_notes(self.records, runs, answered), f"records: {self.path}"]
        notes = "".join(f"<div>{html.escape(line)}</div>" for line in below)
        return f"{above}<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def _answer(self, runs: str) -> list[str]:
        return results_answer.answer(self.records, runs)

    def report(self, height: int = 800) -> inline.Page:
        """Return the report, which Jupyter shows in place, `height` pixels high; `.save(path)` writes it as one HTML file."""
        return inline.Page(page.as_html(document.Sweep.read(self.path)), height)

    def __repr__(self) -> str:
        doubts = [line for line in self.said if line.startswith("doubt: ")]
        text = screen.as_text(self.records, _WIDTH, format_path(Path(self.path).parent))
        return "\n".join([text, *doubts, f"records: {self.path}"])


@dataclass(frozen=True)
class Found(Sweep):
    """The result of a search for the best cell: a sweep that timed only some of its cells.

    best   the best cell's record, or several if none beats the others; empty if no cell fits
    text   the answer in words
    """

    best: list[Record] = field(default_factory=list)
    text: str = ""

    def _answer(self, runs: str) -> list[str]:
        return self.text.splitlines()

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Compared:
    """The changes between two runs.

    found      the pairs of cells, the changes and the tests (ane_sweep.compare.judge.Comparison)
    regressed  True if a cell became worse
    text       the comparison as Markdown
    """

    found: judge.Comparison
    text: str

    @property
    def regressed(self) -> bool:
        return bool(self.found.regressed)

    def _repr_markdown_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


def _weigh(one: Record) -> dict[str, object]:
    """Return the figures that a cell is weighed by, under their names in `best`."""
    latency, shipped = headline.headline(one), headline.shipped_chip(one)
    low, high = latency.span if latency else (None, None)
    host = one.host.get("chip") if headline.answers_by_timing(one) else None
    found: dict[str, object] = {"latency_ms": latency and latency.ms, "latency_kind": latency and latency.kind}
    found |= {"latency_low_ms": low, "latency_high_ms": high, "chip": host or shipped}
    for name in ("ops_share_ane", "cost_share_ane", "psnr_db", "package_bytes"):
        spec = METRICS[name]
        value = metrics.value(one, spec, shipped if spec.kind == "predicted" else None)
        found[spec.search_word] = None if value is None else value / spec.divisor
    return found | {"status": str(one.status)}


def plan(words: Iterable[str], axes: Mapping[str, object]) -> Planned:
    request, _ = asked.request(words, axes)
    made, text, _ = overview.make_plan_view(request, outputs_folder(request.settings.out))
    return Planned(made, text)


def sweep(words: Iterable[str], axes: Mapping[str, object]) -> Sweep:
    request, args = asked.request(words, axes)
    if request.settings.nightly.enabled:
        raise ConfigError("nightly.enabled: a night is run by the command line (ane_sweep/docs/compare.md)")
    audience = inline.Reader()
    with _ONE:
        folder, records = engine.sweep(request, outputs_folder(request.settings.out), args, audience)
    return Sweep(folder, records, audience.said)


def load(run: "str | os.PathLike[str]", out: "str | os.PathLike[str] | None") -> Sweep:
    named = Path(run)
    if not (named / record.FILE_NAME).is_file():
        named = runs.find_run(outputs_folder(None if out is None else os.fspath(out)), os.fspath(run)).folder
    return Sweep(named.absolute(), record.read_records(named))


def best(words: Iterable[str], axes: Mapping[str, Any]) -> Found:
    wishes = {way: axes[way] for way in ("minimise", "maximise") if way in axes}
    figures = {way: names if isinstance(names, str) else ",".join(names) for way, names in wishes.items()}
    wanted, rest = goal.parse([*asked.as_words(words), *(f"{way}={names}" for way, names in figures.items())])
    args = asked.all_words([], {name: value for name, value in axes.items() if name not in wishes})
    args[1:1] = rest
    audience = inline.Reader()
    with compose.isolate_hydra():
        space = free.space(args)
        request = config.load(args) if space is None else searching.first(space)
        wanted = goal.of_settings(request.settings.search, wanted)
        with _ONE:
            out = outputs_folder(request.settings.out)
            found, records = searching.best(request, wanted, out, args, space, audience)
    said = answer.answer_text(found, records, explain=False)
    return Found(found.run.folder, records, audience.said, answer.choose_winners(found.goal, records), said)


def get(run: str, folder: "str | os.PathLike[str]", out: "str | os.PathLike[str] | None") -> list[Path]:
    place = outputs_folder(None if out is None else os.fspath(out))
    one = delivery.select_cell(sides.side(place, run).records, run)
    with open_store(place, writes=False) as store:
        return delivery.deliver(one, store, Path(folder))

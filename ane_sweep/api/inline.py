"""Displays of a sweep in Jupyter: a bar while it runs, and its report. Outside a notebook they print nothing."""

import html
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ane_sweep import engine
from ane_sweep.bridge.plan import DONE, Outcome, Plan
from ane_sweep.bridge.record import Record
from ane_sweep.bridge.task import Task
from ane_sweep.report import page
from ane_sweep.runner import display


@dataclass(frozen=True)
class Page:
    """An HTML page in a frame, which may run its own script but reach nothing outside."""

    html: str
    height: int = 800

    def save(self, path: "str | os.PathLike[str]") -> Path:
        """Write the page as one self-contained file. Raises ConfigError if the file cannot be written."""
        return page.save(Path(path), self.html)

    def _repr_html_(self) -> str:
        frame = f'sandbox="allow-scripts allow-popups" style="width:100%;height:{self.height}px;border:0"'
        return f'<iframe title="ane-sweep report" {frame} srcdoc="{html.escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"report of {len(self.html):,} characters: Jupyter shows it, .save(path) writes it"


@dataclass
class Reader(engine.Terminal):
    """A view of a sweep that was started from Python; it collects the messages for the caller."""

    said: list[str] = field(default_factory=list)

    def tell(self, line: str) -> None:
        self.said.append(line)

    result = tell

    def links(self, pages: dict[str, str]) -> None:
        self.said.append(f"compare: {pages['compare']}")

    def records(self, folder: Path, records: list[Record]) -> None:
        """Print nothing: the caller gets the records as the return value."""

    def watch(self, plan: Plan) -> engine.View:
        show = shower()
        return engine.QuietView(self.tell) if show is None else Bar(self.tell, plan, show)


class Bar(engine.QuietView):
    """A progress bar: finished tasks, running ones and failures. It is drawn only between tasks, so that it disturbs no timing."""

    def __init__(self, tell: Callable[[str], None], plan: Plan, show: Callable[..., Any]):
        super().__init__(tell)
        self.left = {key for key, task in plan.tasks.items() if task.unavailable is None}
        self.total, self.running, self.wrong = len(self.left), dict[str, str](), list[str]()
        self.timed = sum(task.alone and task.unavailable is None for task in plan.tasks.values())
        self.lock, self.handle, self.show = threading.Lock(), None, show
        self._draw("preparing")

    def begin(self, task: Task) -> None:
        with self.lock:
            self.running[task.key] = task.label
            self._draw(", ".join(self.running.values()))

    def end(self, task: Task, outcome: Outcome) -> None:
        with self.lock:
            self.running.pop(task.key, None)
            self.left.discard(task.key)
            if task.unavailable is None and outcome.status not in DONE:
                self.wrong.append(f"{task.label}: {outcome.status}, {display.first_line(outcome.reason or '')}")

    def freeze(self) -> None:
        self._draw(f"timing, {self.timed} processes, one at a time")

    def close(self) -> None:
        self._draw("done" if not self.left else "stopped")

    def _draw(self, doing: str) -> None:
        done = self.total - len(self.left)
        told = "".join(f"<div>{html.escape(line)}</div>" for line in self.wrong)
        text = (
            f'<progress max="{max(1, self.total)}" value="{done}"></progress> {done}/{self.total} {html.escape(doing)}'
        )
        shown = {"text/html": f"<div>{text}</div>{told}", "text/plain": f"{done}/{self.total} {doing}"}
        if self.handle is None:
            self.handle = self.show(shown, raw=True, display_id=True)
        else:
            self.handle.update(shown, raw=True)


def shower() -> Callable[..., Any] | None:
    """Return IPython's display function if a Jupyter kernel shows this process's output; else None, also in plain IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if getattr(shell, "kernel", None) is None:
        return None
    display: Callable[..., Any] = import_module("IPython.display").display
    return display

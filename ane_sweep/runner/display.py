"""The progress of a sweep: a bar and one changing line on a terminal, one line for each finished cell elsewhere."""

import sys
import threading
import time
from collections import defaultdict

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ane_sweep.bridge.plan import Outcome, Plan
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.task import Task
from ane_sweep.outward import escape_controls
from ane_sweep.runner.task_runner import QuietDisplay
from ane_sweep.runner.time_left import TimeLeft
from ane_sweep.terminal import duration

STYLES = {StageStatus.BLOCKED: "yellow", StageStatus.SKIPPED: "yellow"}
_BAR = 12  # columns
HARMLESS = (StageStatus.OK, StageStatus.CACHED, StageStatus.UNAVAILABLE)


class Lines(QuietDisplay):
    """A display of one plain line for each finished cell, for logs and pipes; it also keeps the counts for a terminal's display."""

    def __init__(self, plan: Plan, console: Console):
        self.console = console
        self.todo = {key: task for key, task in plan.tasks.items() if task.unavailable is None}
        self.total, self.cached, self.timed, self.began = len(self.todo), 0, 0, time.monotonic()
        self.running: dict[str, tuple[Task, float]] = {}  # with when it began
        self.remaining = TimeLeft(self.todo.values())
        self.shown_reasons: set[str] = set()
        self.cells = {cell.key: cell.label(plan.axes or ["model"]) for cell in plan.cells if cell.key in plan.chains}
        self.needs = {key: set(plan.list_tasks(key)) & self.todo.keys() for key in self.cells}
        self.cells_of: dict[str, list[str]] = defaultdict(list)  # by task
        for cell, needed in self.needs.items():
            for task in needed:
                self.cells_of[task].append(cell)
        timed = {key for key, task in plan.tasks.items() if task.round}
        self.timings = {key: [one for one in plan.chains[key] if one in timed] for key in self.cells}
        self.trouble: dict[str, Outcome] = {}  # by cell: its first failed task
        self.lock = threading.Lock()
        self.where: dict[str, str] = {}  # with a fleet: task -> the machine that runs it

    def begin(self, task: Task) -> None:
        with self.lock:
            self.running[task.key] = task, time.monotonic()
            self.timed += task.alone

    def at(self, task: Task, machine: str) -> None:
        with self.lock:
            self.where[task.key] = machine

    def end(self, task: Task, outcome: Outcome) -> None:
        if task.unavailable is not None:
            return  # the plan has shown it
        with self.lock:
            _, began = self.running.pop(task.key, (task, time.monotonic()))
            if self.todo.pop(task.key, None) is not None:
                worked = outcome.result.seconds if outcome.status is StageStatus.OK else None
                self.remaining.drop(task, None if worked is None else max(worked, time.monotonic() - began))
            self.cached += outcome.status is StageStatus.CACHED
            lines = self._end_lines(task, outcome)
        for line in lines:  # without the lock: drawing takes it inside rich's own lock
            self._show(line)

    def _end_lines(self, task: Task, outcome: Outcome) -> list[Text]:
        """Return a line for each cell that this task completes."""
        lines = []
        for key in self.cells_of.pop(task.key, ()):
            if outcome.status not in HARMLESS and not task.more_of:
                self.trouble.setdefault(key, outcome)
            self.needs[key].discard(task.key)
            if not self.needs[key]:
                del self.needs[key]
                lines += self._cell(key)
        if outcome.status in HARMLESS and outcome.reason:  # such as an artifact that was made again
            lines += self._reason(f"{task.label}: {outcome.reason}")
        return lines

    def _cell(self, key: str) -> list[Text]:
        bad, many = self.trouble.get(key), str(len(self.cells))
        machines = dict.fromkeys(self.where[timing] for timing in self.timings[key] if timing in self.where)
        line = Text(f"[{len(self.cells) - len(self.needs):>{len(many)}}/{many}] ")
        status = "done" if bad is None else str(bad.status)
        line.append(f"{status:<11} ", "green" if bad is None else STYLES.get(bad.status, "bold red"))
        line.append(escape_controls(self.cells[key]))
        line.append(f" on {', '.join(map(escape_controls, machines))}" if machines else "")
        line.append(f"  {duration(time.monotonic() - self.began)} so far" + self._time_left(), "dim")
        return [line, *(self._reason(bad.reason) if bad is not None and bad.reason else ())]

    def _reason(self, reason: str) -> list[Text]:
        """Return a line with a reason, or none if the reason was shown before."""
        if (first := first_line(reason)) in self.shown_reasons:
            return []
        self.shown_reasons.add(first)
        return [Text(f"  {escape_controls(first)}", "yellow")]

    def freeze(self) -> None:
        """Show that preparation is over. After this, nothing is drawn while a task is timed."""
        if alone := [task for task in self.todo.values() if task.alone]:
            most = "up to " if any(task.more_of for task in alone) else ""
            times = f"{most}{len(alone)} process{'es' if len(alone) != 1 else ''}"
            self._show(Text(f"prepared{self._from_cache()}; timing {times}, one at a time{self._time_left()}", "bold"))

    def say(self, line: str) -> None:
        """Print one status line between two tasks."""
        self._show(Text(line, "yellow"))

    def _from_cache(self) -> str:
        return f" (from the cache: {self.cached} of {self.total - self.remaining.alone} tasks)" if self.cached else ""

    def _time_left(self) -> str:
        """Return the estimated time left as `, about 4 min left`; empty if past durations are unknown."""
        now = time.monotonic()
        seconds = self.remaining.seconds([(task, now - began) for task, began in self.running.values()])
        abreast = max(1, len(set(self.where.values())))  # the machines that have taken part
        return "" if seconds is None or not self.todo else f", about {duration(seconds / abreast)} left"

    def close(self) -> None: ...
    def _show(self, line: Text) -> None:
        self.console.print(line, soft_wrap=not self.console.is_terminal, highlight=False)


class LiveView(Lines):
    """A display of a bar over all tasks and one changing line: stage, cell, time spent and left. Cells that end well print no line."""

    def __init__(self, plan: Plan, console: Console):
        super().__init__(plan, console)
        self.live: Live | None = None
        self._watch(moving=True)

    def begin(self, task: Task) -> None:
        super().begin(task)
        if task.alone and task.key not in self.where and self.live is not None:
            verb = "timing" if task.round else task.stage
            many = self.timed + self.remaining.alone - 1  # the task is counted twice, as begun and as remaining
            text = f"{verb} {self.timed}/{many} {task.label.removeprefix(f'{task.stage} ')}{self._time_left()}"
            self.live.update(self._draw_bar(text), refresh=True)

    def freeze(self) -> None:
        self.close()
        if done := self.total - self.remaining.alone:
            what = f"prepared {done} task{'s' if done != 1 else ''} in {duration(time.monotonic() - self.began)}"
            self._show(Text(what + self._from_cache(), "dim"))
        if self.remaining.alone:
            self._watch(moving=False)

    def close(self) -> None:
        if self.live is not None:
            live, self.live = self.live, None
            live.stop()

    def _watch(self, *, moving: bool) -> None:
        """Start the changing line. If `moving`, a thread draws it twice a second; else it is drawn once before each timed process."""
        view = self._view if moving else None
        self.live = Live(
            get_renderable=view, console=self.console, auto_refresh=moving, refresh_per_second=2, transient=True
        )
        self.live.start()

    def _cell(self, key: str) -> list[Text]:
        return super()._cell(key) if key in self.trouble else []

    def _draw_bar(self, text: str) -> Table:
        """Return the bar over all tasks with a line of text."""
        line, done = Table.grid(padding=(0, 1, 0, 0)), self.total - len(self.todo)
        line.add_column(width=_BAR)
        line.add_column(no_wrap=True, overflow="ellipsis")
        bar = ProgressBar(total=max(1, self.total), completed=done, width=_BAR)
        line.add_row(bar, Text(escape_controls(f"{done}/{self.total} {text}"), "bold"))
        return line

    def _view(self) -> Table:
        with self.lock:
            now, running = time.monotonic(), []
            for key, (task, began) in self.running.items():
                on = f" on {self.where[key]}" if key in self.where else ""
                running.append(f"{task.label}{on} {duration(now - began)}")
            spent = f"{duration(now - self.began)}{self._time_left()}"
            return self._draw_bar(f"{', '.join(running) or 'preparing'} | {spent}")


def first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


def make(plan: Plan, console: Console | None = None) -> Lines:
    console = console or Console(file=sys.stderr)
    return LiveView(plan, console) if console.is_terminal else Lines(plan, console)

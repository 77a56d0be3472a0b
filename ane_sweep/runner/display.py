"""What the user sees while a sweep runs: a live view on a terminal, one line per event elsewhere."""

import statistics
import sys
import threading
import time

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ane_sweep.bridge.outcome import Outcome
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.task import Task
from ane_sweep.outward import visible
from ane_sweep.terminal import duration

STYLES = {StageStatus.OK: "green", StageStatus.CACHED: "cyan", StageStatus.BLOCKED: "yellow"}


class Lines:
    """One plain line per finished task; for logs, pipes and nightly runs. Also the base of the live view."""

    def __init__(self, plan: Plan, console: Console):
        self.console = console
        self.todo = {key: task for key, task in plan.tasks.items() if task.unavailable is None}
        self.total = len(self.todo)
        self.running: dict[str, float] = {}
        self.took: dict[str, list[float]] = {}
        self.lock = threading.Lock()

    def begin(self, task: Task) -> None:
        with self.lock:
            self.running[task.key] = time.monotonic()

    def end(self, task: Task, outcome: Outcome) -> None:
        if task.unavailable is not None:
            return  # said once, in the plan
        with self.lock:
            self.todo.pop(task.key, None)
            began = self.running.pop(task.key, None)
            line = Text(f"[{self.total - len(self.todo):>{len(str(self.total))}}/{self.total}] ")
            line.append(f"{outcome.status:<11} ", STYLES.get(outcome.status, "bold red"))
            line.append(task.label)
            if began is not None:
                took = time.monotonic() - began
                self.took.setdefault(task.stage, []).append(took)
                line.append(f"  {duration(took)}", "dim")
            if outcome.reason:
                line.append(f"  {visible(first_line(outcome.reason))}", "yellow")
            self._show(line)

    def freeze(self) -> None:
        """Preparation is over; from here on nothing of ours may run beside the task that is timed."""
        timed = [task for task in self.todo.values() if task.alone]
        if timed:
            most = "up to " if any(task.more_of for task in timed) else ""
            text = f"timing: {most}{len(timed)} process{'es' if len(timed) > 1 else ''}, one at a time{self._left()}"
            self._show(Text(text, "bold"))

    def say(self, line: str) -> None:
        """A word between two tasks."""
        self._show(Text(line, "yellow"))

    def _left(self) -> str:
        """`, about 4 min left`: by durations of this run, else of past ones; nothing where there are neither."""
        tasks = self.todo.values()
        seconds = [
            statistics.median(self.took[task.stage]) if task.stage in self.took else task.seconds for task in tasks
        ]
        known = [value for value in seconds if value is not None]
        return f", about {duration(sum(known))} left" if len(known) == len(seconds) else ""

    def close(self) -> None:
        pass

    def _show(self, line: Text) -> None:
        self.console.print(line, soft_wrap=True, highlight=False)


class LiveView(Lines):
    """On a terminal: what runs, what is next, time left, below the lines of what is done."""

    def __init__(self, plan: Plan, console: Console):
        super().__init__(plan, console)
        self.live: Live | None = Live(get_renderable=self._view, console=console, refresh_per_second=2, transient=True)
        self.live.start()

    def freeze(self) -> None:
        self.close()
        super().freeze()

    def close(self) -> None:
        if self.live is not None:
            live, self.live = self.live, None
            live.stop()

    def _view(self) -> Group:
        with self.lock:
            now = time.monotonic()
            running = [(self.todo[key], now - began) for key, began in self.running.items() if key in self.todo]
            following = next((task for key, task in self.todo.items() if key not in self.running), None)
            done, remaining = self.total - len(self.todo), self._left()
        width = 30
        filled = round(width * done / max(1, self.total))
        lines = [Text(f"  running  {task.label}  {duration(spent)}", "bold") for task, spent in running]
        if following:
            lines.append(Text(f"  next     {following.label}", "dim"))
        bar = Text("  " + "━" * filled, "green") + Text("━" * (width - filled), "dim")
        bar.append(f"  {done}/{self.total} tasks{remaining}")
        return Group(*lines, bar)


def first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


def make(plan: Plan, console: Console | None = None) -> Lines:
    console = console or Console(file=sys.stderr)
    return LiveView(plan, console) if console.is_terminal else Lines(plan, console)

"""The local executor: preparation in parallel slots, then timing, one process at a time."""

import os
import threading
import time
from collections.abc import Callable

import joblib

from ane_sweep.bridge.executors import Executor
from ane_sweep.bridge.plan import Outcome
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.runner.children import stop_on_signals
from ane_sweep.runner.slots import SlotQueue, order_in_rounds
from ane_sweep.runner.task_runner import TaskRunner
from ane_sweep.store.shared import Shared

EXECUTOR = Executor(help="this machine")
_PREPARING_SHARE = 0.7  # of a time budget, if anything is timed after it


def execute(
    runner: TaskRunner, settings: RunSettings, meanwhile: Callable[[], None] | None = None
) -> dict[str, Outcome]:
    """Run a plan on this machine (see `Execute`). Preparation may use 70 % of a time budget, or all of it if nothing runs alone."""
    slots, minutes, began = settings.lanes, settings.budget_minutes, time.monotonic()
    runner.threads, display = max(1, (os.cpu_count() or 1) // slots), runner.display
    todo = [task for task in runner.plan.tasks.values() if task.key not in runner.outcomes]
    if minutes is not None:
        runner.deadline = began + 60 * minutes * (_PREPARING_SHARE if any(task.alone for task in todo) else 1)
    # Without a time budget the longest chain goes first; with one, the plan's order, which begins with what tells most.
    preparing = [task for task in todo if not task.alone]
    queue = SlotQueue(preparing, runner.outcomes, runner.budget, longest_first=minutes is None)
    if settings.store is not None:
        runner.shared = Shared(settings.store, display.say, stop=runner.stop)
    with runner.fork_servers, stop_on_signals(runner.stop, runner.fork_servers):
        background = threading.Thread(target=meanwhile, daemon=True)  # Ctrl-C need not wait for its imports
        background.start()
        joblib.Parallel(n_jobs=slots, backend="threading")(
            joblib.delayed(queue.run_slot)(runner.perform) for _ in range(slots)
        )
        if queue.error is not None:
            raise queue.error
        while background.is_alive() and not runner.stop.is_set():
            background.join(0.1)
        display.freeze()
        runner.deadline = None if minutes is None else began + 60 * minutes
        for task in order_in_rounds([task for task in todo if task.alone]):
            runner.outcomes[task.key] = runner.perform(task)
    if runner.shared is not None:
        runner.shared.retry_pushes(runner.store)
        runner.run.note(store={"url": runner.shared.url, **runner.shared.tally.as_plain()})
        display.say(runner.shared.describe_traffic())
    return runner.outcomes

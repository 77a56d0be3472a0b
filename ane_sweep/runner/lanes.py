"""Which task is next: in the lanes, where preparation runs side by side, and among those that run alone."""

import random
import threading
from collections.abc import Callable
from typing import Any

from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import Task

LAST = [name for name, stage in STAGES.items() if stage.last]  # in this order, when all timings are taken


def in_rounds(tasks: list[Task]) -> list[Task]:
    """The order in which tasks run alone: what is no timing first, then round after round of `latency.repeats`, then LAST.

    Each round takes all timings once, in an order of its own (shuffled by the round's number, so the same every time):
    drift of the machine, and what a neighbour leaves behind, then hit all cells alike.
    """
    ordered = [task for task in tasks if not task.round and task.stage not in LAST]
    for number in sorted({task.round for task in tasks} - {0}):
        members = [task for task in tasks if task.round == number]
        ordered += random.Random(number).sample(members, len(members))
    return ordered + [task for stage in LAST for task in tasks if task.stage == stage]


class Lanes:
    """Hands ready tasks to the lanes: inputs done, and an estimated peak that fits beside those running."""

    def __init__(self, tasks: list[Task], outcomes: dict[str, Any], budget: int):
        self.waiting = list(tasks)
        self.outcomes = outcomes
        self.budget = budget
        self.running: dict[str, int] = {}
        self.changed = threading.Condition()
        self.error: BaseException | None = None

    def walk(self, perform: Callable[[Task], Any]) -> None:
        """One lane: take a task, perform it, until none is left. The first exception of any lane stops them all."""
        while (task := self._take()) is not None:
            try:
                outcome = perform(task)
            except BaseException as error:
                with self.changed:
                    self.error = self.error or error
                    self.changed.notify_all()
                return
            with self.changed:
                del self.running[task.key]
                self.outcomes[task.key] = outcome
                self.changed.notify_all()

    def _take(self) -> Task | None:
        with self.changed:
            while self.waiting and self.error is None:
                for task in self.waiting:
                    if self._ready(task):
                        self.waiting.remove(task)
                        self.running[task.key] = task.memory_bytes
                        return task
                self.changed.wait()
            return None

    def _ready(self, task: Task) -> bool:
        if not all(key in self.outcomes for key in task.inputs.values()):
            return False
        return not self.running or sum(self.running.values()) + task.memory_bytes <= self.budget

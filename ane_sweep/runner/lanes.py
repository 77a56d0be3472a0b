"""Which task is next: in the lanes, where preparation runs side by side, and among those that run alone."""

import heapq
import random
import threading
from collections.abc import Callable
from typing import Any

from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import Task
from ane_sweep.runner.remaining import expected

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
    """Hands ready tasks to the lanes: inputs done, and an estimated peak that fits beside those running; in the plan's
    order, or with `longest_first` the one before all others that begins the longest way to the end.

    What is ready waits in one queue for each size of peak, of which a plan has few: 100,000 tasks are handed out as
    quickly, each, as ten.
    """

    def __init__(self, tasks: list[Task], outcomes: dict[str, Any], budget: int, longest_first: bool = False):
        self.tasks = tasks
        self.outcomes = outcomes
        self.budget = budget
        self.running: dict[str, int] = {}
        self.changed = threading.Condition()
        self.error: BaseException | None = None
        self.left = len(tasks)
        self.needs = [{key for key in task.inputs.values() if key not in outcomes} for task in tasks]
        self.behind: dict[str, list[int]] = {}  # key -> places of the tasks that need it
        self.ready: dict[int, list[tuple[float, int]]] = {}  # bytes -> a heap of (minus seconds still to come, place)
        for place, needs in enumerate(self.needs):
            for key in needs:
                self.behind.setdefault(key, []).append(place)
        self.to_come = [0.0] * len(tasks)
        for place in reversed(
            range(len(tasks) if longest_first else 0)
        ):  # a plan names a task before those that need it
            after = (self.to_come[other] for other in self.behind.get(tasks[place].key, ()))
            self.to_come[place] = expected(tasks[place]) + max(after, default=0.0)
        for place, needs in enumerate(self.needs):
            if not needs:
                self._make_ready(place)

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
                self._done(task, outcome)
                self.changed.notify_all()

    def _take(self) -> Task | None:
        with self.changed:
            while self.left and self.error is None:
                room = self.budget - sum(self.running.values())
                fitting = [heap for size, heap in self.ready.items() if heap and (size <= room or not self.running)]
                if fitting:
                    task = self.tasks[heapq.heappop(min(fitting))[1]]
                    self.left -= 1
                    self.running[task.key] = task.memory_bytes
                    return task
                self.changed.wait()
            return None

    def _done(self, task: Task, outcome: Any) -> None:
        del self.running[task.key]
        self.outcomes[task.key] = outcome
        for place in self.behind.pop(task.key, ()):
            self.needs[place].discard(task.key)
            if not self.needs[place]:
                self._make_ready(place)

    def _make_ready(self, place: int) -> None:
        waiting = self.ready.setdefault(self.tasks[place].memory_bytes, [])
        heapq.heappush(waiting, (-self.to_come[place], place))

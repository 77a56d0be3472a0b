"""The order of tasks on one machine: preparations in parallel slots, and tasks that run alone."""

import heapq
import random
import threading
from collections import defaultdict
from collections.abc import Callable

from ane_sweep.bridge.plan import Outcome, expected_seconds
from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import Task

_LAST = [name for name, stage in STAGES.items() if stage.last]  # they run in this order, after all timings


def order_in_rounds(tasks: list[Task]) -> list[Task]:
    """Return tasks that run alone in their order: first those that time nothing, then the rounds of `latency.repeats`, then _LAST.

    Each round takes all timings once, in a different order (shuffled by the round's number, so always the same), so
    that drift of the machine and after-effects of the previous task affect all cells equally.
    """
    ordered = [task for task in tasks if not task.round and task.stage not in _LAST]
    for number in sorted({task.round for task in tasks} - {0}):
        members = [task for task in tasks if task.round == number]
        ordered += random.Random(number).sample(members, len(members))
    return ordered + [task for stage in _LAST for task in tasks if task.stage == stage]


class SlotQueue:
    """A queue that gives slots the tasks whose inputs are done and whose estimated peak memory fits into the free
    memory.

    The order is the plan's; with `longest_first`, the task that begins the longest chain in seconds comes first. Ready
    tasks wait in one heap for each peak size, of which a plan has few, so that the time per task does not grow with the
    number of tasks (tested with 100,000).
    """

    def __init__(self, tasks: list[Task], outcomes: dict[str, Outcome], budget: int, longest_first: bool = False):
        self.tasks, self.outcomes, self.budget = tasks, outcomes, budget
        self.running: dict[str, int] = {}
        self.changed = threading.Condition()
        self.error: BaseException | None = None
        self.left = len(tasks)
        self.waits_for = [{key for key in task.inputs.values() if key not in outcomes} for task in tasks]
        self.dependants: dict[str, list[int]] = defaultdict(list)  # key -> places of the tasks that need it
        # peak bytes -> heap of (minus seconds of the chain, place)
        self.ready: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for place, needs in enumerate(self.waits_for):
            for key in needs:
                self.dependants[key].append(place)
        self.chain_s = [0.0] * len(tasks)
        if longest_first:
            for place, task in reversed(list(enumerate(tasks))):  # a plan names a task before those that need it
                after = (self.chain_s[other] for other in self.dependants[task.key])
                self.chain_s[place] = expected_seconds(task) + max(after, default=0.0)
        for place in range(len(tasks)):
            self._note_if_ready(place)

    def run_slot(self, perform: Callable[[Task], Outcome]) -> None:
        """Take tasks and perform them in this thread until none is left. The first exception of any slot stops all slots."""
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
                for place in self.dependants.pop(task.key, ()):
                    self.waits_for[place].discard(task.key)
                    self._note_if_ready(place)
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

    def _note_if_ready(self, place: int) -> None:
        if not self.waits_for[place]:
            heapq.heappush(self.ready[self.tasks[place].memory_bytes], (-self.chain_s[place], place))

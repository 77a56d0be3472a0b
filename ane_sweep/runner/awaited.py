"""What of a plan is left, and what each task of it waits for. A task that was done may be left again: who waits for it waits anew.

Timings of one place begin together, in rounds, when all is prepared that they need: they wait for one gate, and the gate for
each preparation, so that what is kept grows with the tasks and not with their square.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable

from ane_sweep.bridge.task import Task
from ane_sweep.runner.lanes import in_rounds


class Awaited:
    """`rank`: the place of each task in the order; `left`: keys of those that have no outcome yet."""

    def __init__(self, tasks: Iterable[Task], done: Collection[str]) -> None:
        self.tasks = {task.key: task for task in tasks}
        every = list(self.tasks.values())
        ordered = [task for task in every if not task.alone] + in_rounds([task for task in every if task.alone])
        self.rank = {task.key: number for number, task in enumerate(ordered)}
        self.left = self.tasks.keys() - done
        gates = {_gate(place): keys & self.left for place, keys in prepared_for(every).items()}
        before = {key: set(upstream(task)) for key, task in self.tasks.items()}
        for key, task in self.tasks.items():
            if _is_timed_there(task) and gates[_gate(task.place)]:
                before[key].add(_gate(task.place))
        missing = self.left | {gate for gate, keys in gates.items() if keys}
        self._waits = {key: needed & missing for key, needed in before.items()} | gates
        self._waiters: dict[str, list[str]] = defaultdict(list)
        for key, needed in (before | gates).items():
            for one in needed:
                self._waiters[one].append(key)

    def ready(self) -> list[str]:
        """What waits for nothing, in the order."""
        return sorted(filter(self.is_ready, self.left), key=self.rank.__getitem__)

    def is_ready(self, key: str) -> bool:
        return key in self.left and not self._waits[key]

    def end(self, key: str) -> list[str]:
        """It has its outcome: what now waits for nothing."""
        self.left.discard(key)
        found = []
        for waiter in self._waiters[key]:
            self._waits[waiter].discard(key)
            if self.is_ready(waiter):
                found.append(waiter)
            elif waiter not in self.tasks and not self._waits[waiter]:
                found += self.end(waiter)  # a gate
        return found

    def again(self, keys: Collection[str]) -> None:
        """Their outcomes count no more."""
        self.left |= set(keys)
        for key in keys:
            for waiter in self._waiters[key]:
                self._waits[waiter].add(key)


def upstream(task: Task) -> list[str]:
    return [*task.inputs.values(), *task.after, *([task.more_of] if task.more_of else [])]


def prepared_for(tasks: Iterable[Task]) -> dict[str, set[str]]:
    """Place -> all that is to be prepared for what is timed there."""
    by_key = {task.key: task for task in tasks}
    found: dict[str, set[str]] = {}
    timed: dict[str, list[Task]] = defaultdict(list)
    for task in by_key.values():
        if _is_timed_there(task):
            timed[task.place].append(task)
    for place, members in timed.items():
        before, new = set[str](), [key for task in members for key in task.inputs.values()]
        while new:
            if (key := new.pop()) in by_key and key not in before and not by_key[key].alone:
                before.add(key)
                new += by_key[key].inputs.values()
        found[place] = before
    return found


def _is_timed_there(task: Task) -> bool:
    return task.alone and bool(task.place)


def _gate(place: str) -> str:
    return f"all for {place}"

"""The remaining tasks of a sweep: which of them are ready, and how often each was attempted.

A task may be reopened after it has ended; the tasks that depend on it then wait again. Timings of one place begin
together, in rounds, when everything that they need is prepared. They depend on one common node, which depends on each
preparation, so that memory grows with the number of tasks, not its square.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ane_sweep.bridge.task import Task
from ane_sweep.runner.slots import order_in_rounds

MAX_LOSSES = 2  # of attempts that had begun
MAX_ATTEMPTS = 10  # of attempts in all


class ReadyQueue:
    """The queue of tasks that are ready.

    rank         position of each task in the order
    unfinished   keys of the tasks without an outcome
    """

    def __init__(self, tasks: Iterable[Task], done: Collection[str]) -> None:
        self.tasks = {task.key: task for task in tasks}
        every = list(self.tasks.values())
        ordered = [task for task in every if not task.alone] + order_in_rounds([task for task in every if task.alone])
        self.rank = {task.key: number for number, task in enumerate(ordered)}
        self.unfinished = self.tasks.keys() - done
        gates = {_gate_key(place): keys & self.unfinished for place, keys in list_preparations(every).items()}
        before = {key: set(list_upstream(task)) for key, task in self.tasks.items()}
        for key, task in self.tasks.items():
            if _is_timed_at_place(task) and gates[_gate_key(task.place)]:
                before[key].add(_gate_key(task.place))
        missing = self.unfinished | {gate for gate, keys in gates.items() if keys}
        self._waits = {key: needed & missing for key, needed in before.items()} | gates
        self._waiters: dict[str, list[str]] = defaultdict(list)
        for key, needed in (before | gates).items():
            for upstream in needed:
                self._waiters[upstream].append(key)

    def list_ready(self) -> list[str]:
        """Return the keys of the unfinished tasks that wait for no other, in order."""
        return sorted(filter(self.is_ready, self.unfinished), key=self.rank.__getitem__)

    def is_ready(self, key: str) -> bool:
        return key in self.unfinished and not self._waits[key]

    def finish(self, key: str) -> list[str]:
        """Note that a task has its outcome. Return the keys of the tasks that become ready."""
        self.unfinished.discard(key)
        ready = []
        for waiter in self._waiters[key]:
            self._waits[waiter].discard(key)
            if self.is_ready(waiter):
                ready.append(waiter)
            elif waiter not in self.tasks and not self._waits[waiter]:
                ready += self.finish(waiter)  # a gate
        return ready

    def reopen(self, keys: Collection[str]) -> None:
        """Count tasks as unfinished again, so that their dependants wait for them."""
        self.unfinished |= set(keys)
        for key in keys:
            for waiter in self._waiters[key]:
                self._waits[waiter].add(key)


def list_upstream(task: Task) -> list[str]:
    """Return the keys of the tasks that must end before a task."""
    return [*task.inputs.values(), *task.after, *([task.more_of] if task.more_of else [])]


def list_preparations(tasks: Iterable[Task]) -> dict[str, set[str]]:
    """Return, for each place, the keys of all preparations for the timings there."""
    by_key = {task.key: task for task in tasks}
    preparations: dict[str, set[str]] = defaultdict(set)
    for timing in filter(_is_timed_at_place, by_key.values()):
        before, new = preparations[timing.place], [*timing.inputs.values()]
        while new:
            if (key := new.pop()) in by_key and key not in before and not by_key[key].alone:
                before.add(key)
                new += by_key[key].inputs.values()
    return preparations


def _is_timed_at_place(task: Task) -> bool:
    return task.alone and bool(task.place)


def _gate_key(place: str) -> str:
    return f"everything prepared for {place}"


@dataclass(frozen=True)
class LostAttempt:
    """An attempt that ended without an outcome.

    on   the machine, if it is the reason why the task cannot be done
    """

    reason: str
    on: str | None = None

    @classmethod
    def from_error(cls, error: BaseException | None) -> "LostAttempt":
        if type(error).__name__ == "KilledWorker":
            return cls("its worker was lost")
        return cls(f"{type(error).__name__}: {error}".splitlines()[0][:300])


@dataclass
class Attempt:
    """A task that was submitted to the scheduler, or waits to be submitted.

    resources    the scheduler's resources for it; None while no worker fits
    began_on     the worker that began it
    unfit_since  time (time.monotonic()) since which no worker has the resources
    """

    task: Task
    resources: dict[str, float] | None
    name: str
    began_on: str | None = None
    unfit_since: float | None = None


@dataclass
class RetryPolicy:
    """A counter of attempts at each task, which decides when to give up. `sweep` is a unique name of the sweep."""

    sweep: str
    made: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    def name_attempt(self, task: Task) -> str:
        """Count one more attempt and return its name, which is unique among all sweeps."""
        self.made[task.key] += 1
        return f"{task.stage}-{task.key[:12]}-{self.sweep}-{self.made[task.key]}"

    def give_up(self, task: Task, began_on: str | None, lost: LostAttempt) -> str | None:
        """Record a lost attempt. Return why the task must not be retried, or None if it may be."""
        self.lost[task.key] += began_on is not None or lost.on is not None
        made = self.made[task.key]
        if self.lost[task.key] < MAX_LOSSES and made < MAX_ATTEMPTS:
            return None
        last = "" if lost.on else f", last{f' on {began_on}' if began_on else ''}: {lost.reason}"
        return f"lost {made} times{last}"

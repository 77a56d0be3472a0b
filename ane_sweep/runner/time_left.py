"""The estimated time that a sweep's remaining tasks take, updated in constant time as tasks end."""

import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import Task

_LATEST = 99  # durations of a stage that enter its median


class TimeLeft:
    """Counts the remaining tasks of each stage and adds up their expected seconds.

    alone   remaining tasks that run alone
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.count: Counter[str] = Counter()
        self.estimate_ms: Counter[str] = Counter()  # from before this run; whole numbers, as sums of floats would drift
        self.alone = 0
        self.durations: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_LATEST))
        for task in tasks:
            self._add(task, 1)

    def drop(self, task: Task, seconds: float | None) -> None:
        """Remove a task that has ended, after `seconds` if a process ran it."""
        self._add(task, -1)
        if seconds is not None:
            self.durations[task.stage].append(seconds)

    def seconds(self) -> float:
        """Return the estimated seconds of all remaining tasks, one after the other."""
        medians = {stage: statistics.median(seconds) for stage, seconds in self.durations.items()}
        return sum(
            many * medians[stage] if stage in medians else self.estimate_ms[stage] / 1000
            for stage, many in self.count.items()
        )

    def _add(self, task: Task, sign: int) -> None:
        self.count[task.stage] += sign
        self.estimate_ms[task.stage] += sign * round(1000 * expected_seconds(task, {}))
        self.alone += sign * task.alone


def expected_seconds(task: Task, durations: Mapping[str, Sequence[float]]) -> float:
    """Return the seconds that a task will take: the median of its stage in this run, else of past runs, else a guess."""
    if task.stage in durations:
        return statistics.median(durations[task.stage])
    return STAGES[task.stage].guess(task.work) if task.seconds is None else task.seconds

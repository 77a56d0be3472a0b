"""How long what is to be done will take, kept up as tasks end: among 100,000 tasks it is asked as quickly as among ten."""

import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import Task

_LATEST = 99  # durations of a stage that its median is taken of


class Remaining:
    """Tasks to be done, by stage: how many, and what they were taken to last before any of this run had ended."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.count: Counter[str] = Counter()
        self.before: Counter[str] = Counter()  # whole milliseconds: sums of floats would drift
        self.alone = 0
        self.took: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_LATEST))
        for task in tasks:
            self._add(task, 1)

    def drop(self, task: Task, seconds: float | None) -> None:
        """It has ended, after `seconds` where a process did it."""
        self._add(task, -1)
        if seconds is not None:
            self.took[task.stage].append(seconds)

    def seconds(self) -> float:
        medians = {stage: statistics.median(took) for stage, took in self.took.items()}
        return sum(
            many * medians[stage] if stage in medians else self.before[stage] / 1000
            for stage, many in self.count.items()
        )

    def _add(self, task: Task, sign: int) -> None:
        self.count[task.stage] += sign
        self.before[task.stage] += sign * round(1000 * expected(task, {}))
        self.alone += sign * task.alone


def expected(task: Task, took: Mapping[str, Sequence[float]]) -> float:
    """Seconds that a task will take: the median of its stage in this run, else what past ones took, else a guess."""
    if task.stage in took:
        return statistics.median(took[task.stage])
    return STAGES[task.stage].guess(task.work) if task.seconds is None else task.seconds

"""The estimated time that a sweep's remaining tasks take, updated in constant time when tasks end."""

import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable

from ane_sweep.bridge.task import CHEAP_S, Task
from ane_sweep.planner.estimates import SIMILAR

_LATEST = 99  # durations of a stage that are kept
_SLACK_S = 5.0  # a task that runs for twice its time and this makes the estimate unknown
Kind = tuple[str, str, int, float | None, bool]


class TimeLeft:
    """The remaining tasks by stage, sort and size, with the durations of similar tasks in this run, else in past ones."""

    def __init__(self, tasks: Collection[Task]) -> None:
        self.count = Counter(map(_kind, tasks))
        self.alone = sum(task.alone for task in tasks)
        self.took: dict[tuple[str, str], deque[tuple[int, float]]] = defaultdict(lambda: deque(maxlen=_LATEST))

    def drop(self, task: Task, seconds: float | None) -> None:
        """Remove a task that has ended, after `seconds` if a process completed it."""
        self.count[_kind(task)] -= 1
        self.alone -= task.alone
        if seconds is not None:
            self.took[task.stage, task.sort].append((task.work, seconds))

    def seconds(self, running: Iterable[tuple[Task, float]] = ()) -> float | None:
        """Return the estimated seconds of the rest, one task after another, or None while some task's duration is
        unknown.

        running   running tasks, with the seconds since they began

        A duration is known if a task of that stage, sort and similar size has ended in this run or an earlier one. A guess
        from the size of a model could be wrong by a factor of several on another machine; so could past durations, for
        a task that has already run twice as long as those.
        """
        left, each = 0.0, dict[Kind, float]()
        for kind, many in self.count.items():
            if many:
                if (known := self._expected(kind)) is None:
                    return None
                each[kind] = known
                left += many * known
        for task, spent in running:
            known = each.get(_kind(task), 0.0)
            if spent > 2 * known + _SLACK_S:
                return None
            left -= min(spent, known)
        return left

    def _expected(self, kind: Kind) -> float | None:
        stage, sort, work, recorded, is_more = kind
        least, most = work / SIMILAR, max(work, 1) * SIMILAR
        here = [seconds for size, seconds in self.took[stage, sort] if least <= max(size, 1) <= most]
        if not here:
            return recorded
        mean = statistics.fmean(here)
        return 0.0 if is_more and mean > CHEAP_S else mean


def _kind(task: Task) -> Kind:
    return task.stage, task.sort, task.work, task.seconds, bool(task.more_of)

"""The estimated time that a sweep's remaining tasks take, updated in constant time when tasks end."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable

from ane_sweep.bridge.task import CHEAP_S, Task
from ane_sweep.planner.estimates import scale

_LATEST = 99  # durations of a stage that are kept
_SLACK_S = 5.0  # a task that runs for twice its time and this makes the estimate unknown
Kind = tuple[str, str, float, float | None, bool]


class TimeLeft:
    """The remaining tasks by stage, sort and rule, with the durations of such tasks in this run, else in past ones."""

    def __init__(self, tasks: Collection[Task]) -> None:
        self.count = Counter(map(_kind, tasks))
        self.alone = sum(task.alone for task in tasks)
        self.took: dict[tuple[str, str], deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=_LATEST))

    def drop(self, task: Task, seconds: float | None) -> None:
        """Remove a task that has ended, after `seconds` if a process completed it."""
        self.count[_kind(task)] -= 1
        self.alone -= task.alone
        if seconds is not None and task.rule_s > 0:
            self.took[task.stage, task.sort].append((task.rule_s, seconds))

    def seconds(self, running: Iterable[tuple[Task, float]] = ()) -> float | None:
        """Return the estimated seconds of the rest, one task after another, or None while some task's duration is
        unknown.

        running   running tasks, with the seconds since they began

        A duration is known if a task of that sort has ended in an earlier run, or one of that stage and sort in this
        one. The rule alone could be wrong by a factor of several on another machine; so could past durations, for a
        task that has already run twice as long as those.
        """
        left = 0.0
        for kind, many in self.count.items():
            if (known := self._expected(kind) if many else 0.0) is None:
                return None
            left += many * known
        for task, spent in running:
            known = self._expected(_kind(task)) or 0.0
            if spent > 2 * known + _SLACK_S:
                return None
            left -= min(spent, known)
        return left

    def _expected(self, kind: Kind) -> float | None:
        stage, sort, rule_s, recorded, is_more = kind
        if not (here := self.took[stage, sort]):
            return recorded
        expected = scale(rule_s, here)
        return 0.0 if is_more and expected > CHEAP_S else expected


def _kind(task: Task) -> Kind:
    return task.stage, task.sort, task.rule_s, task.seconds, bool(task.more_of)

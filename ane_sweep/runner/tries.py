"""A task that is with the scheduler of a fleet; how often it was tried and lost, and when that is enough."""

from collections import Counter
from dataclasses import dataclass, field

from ane_sweep.bridge.outcome import Outcome
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.task import Task

LOSSES = 2  # of a task that was lost while it ran
MOST = 10  # of one that was lost before it began


@dataclass(frozen=True)
class Lost:
    """Why a task has to be asked for again; `on`: the machine that cannot do it."""

    why: str
    on: str | None = None

    @classmethod
    def of(cls, error: BaseException | None) -> "Lost":
        if type(error).__name__ == "KilledWorker":
            return cls("its worker was lost")
        return cls(f"{type(error).__name__}: {error}".splitlines()[0][:300])


@dataclass
class Flight:
    """A task that is with the scheduler, or would be: `takes` is None as long as nobody is there who it could be given to."""

    task: Task
    takes: dict[str, float] | None
    name: str
    began: str | None = None  # on which worker
    unfit_since: float | None = None


@dataclass
class Tries:
    """`sweep`: what no other sweep is called."""

    sweep: str
    made: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    def next(self, task: Task) -> str:
        """One more: its name, unlike any other of any sweep."""
        self.made[task.key] += 1
        return f"{task.stage}-{task.key[:12]}-{self.sweep}-{self.made[task.key]}"

    def enough(self, task: Task, began: str | None, lost: Lost) -> str | None:
        """One was lost, which had begun on some machine or had not: why there is no other; None: there is."""
        self.lost[task.key] += began is not None or lost.on is not None
        made = self.made[task.key]
        if self.lost[task.key] < LOSSES and made < MOST:
            return None
        said = "" if lost.on else f", last{f' on {began}' if began else ''}: {lost.why}"
        return f"lost {made} times{said}"


def failed(why: str) -> Outcome:
    """What is recorded of a task that nobody tries any more."""
    return Outcome(StageStatus.FAILED, why)

"""Which machine of a fleet does a task: all processes that time one program are bound to one, and whoever has said that it cannot
(a full disk, a store out of its reach) is not asked for that task again.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field

from ane_sweep.bridge.outcome import Outcome
from ane_sweep.bridge.task import Task
from ane_sweep.fleet import members
from ane_sweep.runner import homecoming, needs
from ane_sweep.runner.wire import Spot

Program = tuple[str, str]  # (place, what is timed there)


def program(task: Task) -> Program:
    return task.place, task.inputs.get("program") or task.inputs.get("reference") or task.key


@dataclass
class Binding:
    """`bound`: program -> the worker that times it; `cannot`: program, or key of a task -> worker -> why."""

    tasks: InitVar[Iterable[Task]]
    bound: dict[Program, str] = field(default_factory=dict)
    cannot: dict[Program | str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    _held: Counter[str] = field(default_factory=Counter)  # programs of each worker
    _ailing: Counter[str] = field(default_factory=Counter)

    def __post_init__(self, tasks: Iterable[Task]) -> None:
        self.timings: dict[Program, list[Task]] = defaultdict(list)
        for task in tasks:
            if _is_bound(task):
                self.timings[program(task)].append(task)

    def fitting(self, task: Task, spots: Iterable[Spot]) -> list[Spot]:
        """Who could do it, the likeliest first."""
        wanted = needs.of(task, task.place)
        found = [spot for spot in spots if spot.fits(wanted) and spot.name not in self.cannot.get(_whose(task), ())]
        return sorted(found, key=lambda spot: (self._ailing[spot.name], self._held[spot.name], spot.name))

    def takes(self, task: Task, spots: Sequence[Spot]) -> dict[str, float] | None:
        """What it is to be given of the scheduler's resources; None: nobody is there who it could be bound to."""
        wanted = needs.of(task, task.place)
        if _is_bound(task):
            if (name := self.bound.get(program(task))) is None:
                if not (there := self.fitting(task, spots)):
                    return None
                self.bind(task, name := there[0].name)
            return wanted | {members.name_label(name): 1.0}
        if _whose(task) not in self.cannot:
            return wanted
        there = self.fitting(task, spots)
        return wanted | {members.name_label(there[0].name): 1.0} if there else None

    def bind(self, task: Task, name: str) -> None:
        mark = program(task)
        if (before := self.bound.get(mark)) is not None:
            self._held[before] -= 1
        self._held[name] += 1
        self.bound[mark] = name

    def refuse(self, task: Task, name: str, why: str) -> None:
        self.cannot[_whose(task)][name] = why
        self._ailing[name] += 1

    def said(self, task: Task) -> str:
        """Why nobody of those could who were asked."""
        return "; ".join(dict.fromkeys(self.cannot[_whose(task)].values()))

    def other(self, task: Task, spots: Iterable[Spot]) -> str | None:
        """A worker that could time its program in place of the one that does."""
        if not _is_bound(task) or (away := self.bound.get(program(task))) is None:
            return None
        return next((spot.name for spot in self.fitting(task, spots) if spot.name != away), None)

    def moved(self, task: Task, to: str, on_their_way: Collection[str], outcomes: Mapping[str, Outcome]) -> list[Task]:
        """Its program is timed by another one from now on: the timings that are to be taken anew, first come first."""
        self.bind(task, to)
        anew: dict[str, Task] = {}
        for one in self.timings[program(task)]:
            done = one.key in outcomes and outcomes[one.key].done
            if one.key in on_their_way or done or one.more_of in anew:
                anew[one.key] = one
        return list(anew.values())

    def elsewhere(self, task: Task, known: Outcome, spots: Iterable[Spot]) -> bool:
        """Whether a timing that this run has from before was taken on another machine than the others can be."""
        name = homecoming.measured_by(known)
        if not (_is_bound(task) and known.done and name):
            return False
        if not any(spot.name == name for spot in spots):
            return True
        if program(task) not in self.bound:
            self.bind(task, name)
        return self.bound[program(task)] != name


def _whose(task: Task) -> Program | str:
    return program(task) if _is_bound(task) else task.key


def _is_bound(task: Task) -> bool:
    """Where a name was asked for, the place is that one machine."""
    return task.alone and task.place.startswith("HOST-")

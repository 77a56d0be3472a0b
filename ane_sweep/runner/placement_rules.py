"""Rules for which worker of a fleet does a task, expressed as resources of the scheduler.

Dask routes a task to a worker that has the amounts it takes:

TOOLS-<digest>   unlimited: workers with exactly the sweep's versions
NAME-<worker>    unlimited: one worker
HOST-<digest>    unlimited: equivalent machines
PREP             number of parallel preparations
MEMORY           GiB that preparations may use together
TIME             1: timings run one at a time

All processes that time one program are bound to one worker. A worker that cannot do a task (for example with a full
disk, or without access to the store) does not get it again.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field

from ane_sweep.bridge.plan import Outcome
from ane_sweep.bridge.task import Task
from ane_sweep.fleet import members
from ane_sweep.runner.dask_connection import FleetWorker

Program = tuple[str, str]  # (place, key of what is timed there)
_UNLIMITED = 1e6  # the amount of a label


@dataclass
class PlacementRules:
    """The workers that tasks are bound to, and excluded workers.

    bound      program -> the worker that times it
    excluded   program, or key of a task -> worker -> why it cannot do it
    """

    tasks: InitVar[Iterable[Task]]
    bound: dict[Program, str] = field(default_factory=dict)
    excluded: dict[Program | str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    _programs: Counter[str] = field(default_factory=Counter)  # bound to each worker
    _refusals: Counter[str] = field(default_factory=Counter)  # by worker

    def __post_init__(self, tasks: Iterable[Task]) -> None:
        self.timings: dict[Program, list[Task]] = defaultdict(list)
        for task in filter(_is_bound, tasks):
            self.timings[program_of(task)].append(task)

    def find_fitting(self, task: Task, workers: Iterable[FleetWorker]) -> list[FleetWorker]:
        """Return the workers that could do a task, first those with the fewest refusals, then with the fewest programs."""
        needed, excluded = required_resources(task, task.place), self.excluded.get(_subject(task), ())
        fitting = [worker for worker in workers if worker.fits(needed) and worker.name not in excluded]
        return sorted(fitting, key=lambda one: (self._refusals[one.name], self._programs[one.name], one.name))

    def choose_resources(self, task: Task, workers: Sequence[FleetWorker]) -> dict[str, float] | None:
        """Return the resources with which to submit a task, or None if it must be bound to a worker and none fits."""
        needed = required_resources(task, task.place)
        if not _is_bound(task) and _subject(task) not in self.excluded:
            return needed
        name = self.bound.get(program_of(task))
        if name is None:
            if not (fitting := self.find_fitting(task, workers)):
                return None
            name = fitting[0].name
            if _is_bound(task):
                self.bind(task, name)
        return needed | {members.name_label(name): 1.0}

    def bind(self, task: Task, name: str) -> None:
        """Let a worker time a task's program from now on."""
        program = program_of(task)
        if (previous := self.bound.get(program)) is not None:
            self._programs[previous] -= 1
        self._programs[name] += 1
        self.bound[program] = name

    def exclude(self, task: Task, name: str, reason: str) -> str:
        """Never give a task, or a bound task's program, to a worker again. Return the reasons of all that are excluded."""
        self.excluded[_subject(task)][name] = reason
        self._refusals[name] += 1
        return "; ".join(dict.fromkeys(self.excluded[_subject(task)].values()))

    def find_substitute(self, task: Task, workers: Iterable[FleetWorker]) -> str | None:
        """Return a worker that could time a task's program in place of its current one, or None."""
        if not _is_bound(task) or (current := self.bound.get(program_of(task))) is None:
            return None
        return next((worker.name for worker in self.find_fitting(task, workers) if worker.name != current), None)

    def move(self, task: Task, to: str, submitted: Collection[str], outcomes: Mapping[str, Outcome]) -> list[Task]:
        """Bind a task's program to another worker. Return the timings that must be repeated, in order."""
        self.bind(task, to)
        anew: dict[str, Task] = {}
        for timing in self.timings[program_of(task)]:
            done = timing.key in outcomes and outcomes[timing.key].done
            if timing.key in submitted or done or timing.more_of in anew:
                anew[timing.key] = timing
        return list(anew.values())

    def was_measured_elsewhere(self, task: Task, outcome: Outcome, workers: Iterable[FleetWorker]) -> bool:
        """Return True if an earlier timing of this run is from a machine on which the program's other timings cannot be
        taken.

        If that machine is connected and the program not bound yet, the program is bound to it.
        """
        name: str | None = outcome.result.facts.get("measured_on", {}).get("host", {}).get("worker")
        if not (_is_bound(task) and outcome.done and name):
            return False
        if not any(worker.name == name for worker in workers):
            return True
        if program_of(task) not in self.bound:
            self.bind(task, name)
        return self.bound[program_of(task)] != name


def program_of(task: Task) -> Program:
    """Return (place, key of the program) of a task's timing."""
    return task.place, task.inputs.get("program") or task.inputs.get("reference") or task.key


def _subject(task: Task) -> Program | str:
    return program_of(task) if _is_bound(task) else task.key


def _is_bound(task: Task) -> bool:
    """Return True for a timing that is bound to one of several equivalent machines."""
    return task.alone and task.place.startswith("HOST-")


def offered_resources(member: members.Member, prepare: int) -> dict[str, float]:
    """Return the resources of a worker that runs `prepare` preparations in parallel."""
    labels = (tools_label(member.tools), members.name_label(member.name), members.host_label(member.key))
    slots = {"PREP": float(prepare), "MEMORY": round(member.memory_gib, 2), "TIME": 1.0}
    return {**dict.fromkeys(labels, _UNLIMITED), **slots}


def required_resources(task: Task, place: str) -> dict[str, float]:
    """Return the resources that a task needs. `place`: the label of the machines that may run it; "": any."""
    needed = {tools_label(members.tools()): 1.0} | ({place: 1.0} if place else {})
    if task.alone:
        return needed | {"TIME": 1.0}
    return needed | ({} if place else {"PREP": 1.0}) | {"MEMORY": round(task.memory_bytes / 2**30, 2)}


def tools_label(tools: Mapping[str, str | None]) -> str:
    versions = [tools.get(name) for name in members.SAME]
    return f"TOOLS-{hashlib.sha256(json.dumps(versions).encode()).hexdigest()[:16]}"


def describe_resources(resources: Mapping[str, float], names: Mapping[str, Sequence[str]]) -> str:
    """Return resources in words: `worker m4-a, 2.3 GiB of memory`. `names`: label of a place -> its workers."""
    words = ["the versions of this sweep"]
    for label, amount in resources.items():
        kind, _, name = label.partition("-")
        if kind == "NAME":
            words.append(f"worker {name}")
        elif kind == "HOST":
            words.append(f"one of the workers {', '.join(names[label])}")
        elif kind == "MEMORY":
            words.append(f"{amount:g} GiB of memory")
        elif kind == "PREP":
            words.append("a worker that prepares (--prepare above 0)")
    return ", ".join(words)

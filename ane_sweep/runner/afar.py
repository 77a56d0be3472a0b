"""Runs a plan on a fleet: futures over the DAG, each a child process on some machine. `walk` is the same on this one.

what is ready       goes to Dask at once, with the resources that it takes and its place in the order
what is timed       goes to one machine for all processes of a program, and begins when all is prepared that is to be
                    timed there; Dask's resource TIME makes it one at a time, that machine's lock keeps the rest away
a lost worker       its task runs once more where it fits, then is recorded with the reason. Processes of a program that
                    were timed on a machine which does not come back are forgotten and taken anew on another like it: no
                    record holds the figures of two
a lost scheduler    is waited for (executor.wait_s); what was asked of it is asked again
no worker that fits is said at once, and recorded after executor.wait_s
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from ane_sweep.bridge.outcome import Outcome
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.protocol import Interrupted
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.task import Task
from ane_sweep.errors import ConfigError
from ane_sweep.fleet import link
from ane_sweep.runner import homecoming, needs, walk
from ane_sweep.runner.gate import Gate
from ane_sweep.runner.lanes import in_rounds
from ane_sweep.runner.wire import Spot, Wire
from ane_sweep.store.cache import Store
from ane_sweep.store.runs import Run

TRIES = 2  # of a task that was lost while it ran
MOST_TRIES = 10  # of one that was lost before it began
_TICK_S = 1.0


@dataclass
class Flight:
    """A task that is with the scheduler."""

    task: Task
    takes: dict[str, float]
    name: str
    began: str | None = None  # on which worker
    unfit_since: float | None = None


@dataclass
class Sweep:
    """The one thread that decides. Whatever takes time runs in `pool`, and comes back as a call in `heard`."""

    plan: Plan
    settings: dict[str, Any]
    display: walk.Display
    home: homecoming.Home
    at: str
    certificates: Path
    heard: "Queue[Callable[[], None]]" = field(default_factory=Queue)
    flights: dict[str, Flight] = field(default_factory=dict)
    bound: dict[tuple[str, str], str] = field(default_factory=dict)  # (place, program) -> the worker that times it
    lost: Counter[str] = field(default_factory=Counter)
    tries: Counter[str] = field(default_factory=Counter)
    dead: str | None = None  # why nothing can be asked of the fleet any more
    spots: list[Spot] = field(default_factory=list)

    def __post_init__(self) -> None:
        done = self.home.worker.outcomes
        tasks = [task for task in self.plan.tasks.values() if task.key not in done]
        ordered = [task for task in tasks if not task.alone] + in_rounds([task for task in tasks if task.alone])
        self.rank = {task.key: number for number, task in enumerate(ordered)}
        self.waits = {task.key: {key for key in _upstream(task) if key not in done} for task in tasks}
        self.waits |= {key: self.waits[key] | more for key, more in _barriers(tasks).items()}
        self.waiters: dict[str, list[str]] = defaultdict(list)
        for key, upstream in self.waits.items():
            for needed in upstream:
                self.waiters[needed].append(key)
        self.left = set(self.rank)
        self.sweep_id = f"{self.home.run.stamp}-{random.SystemRandom().getrandbits(32):08x}"

    def walk(self) -> None:
        """Until every task has its outcome. Raises Interrupted."""
        with ThreadPoolExecutor(max(2, self.settings["lanes"])) as self.pool:
            self.wire = self._connected()
            try:
                for key in sorted(self.left, key=self.rank.__getitem__):
                    if not self.waits[key]:
                        self._consider(key)
                looked = 0.0
                while self.left:
                    try:
                        self.heard.get(timeout=_TICK_S)()
                    except Empty:
                        pass
                    if time.monotonic() - looked >= _TICK_S:
                        looked = time.monotonic()
                        self._look()
            except BaseException:
                self.home.worker.stop.set()
                self.home.children_end()
                self._quietly(self.wire.stop)
                raise
            finally:
                self._quietly(self.wire.close)

    # One task's way

    def _consider(self, key: str) -> None:
        task = self.plan.tasks[key]
        self._aside(partial(self.home.without_fleet, task, self.dead), partial(self._considered, task))

    def _considered(self, task: Task, known: Outcome | None) -> None:
        if task.key in self.flights or task.key not in self.left:  # somebody was faster
            return
        if known is not None and self._elsewhere(task, known):
            self.home.forget(task)
            known = None
        if known is None:
            self._submit(task)
        else:
            self._settle(task, known)

    def _submit(self, task: Task) -> None:
        if self.dead is not None:
            return self._settle(task, Outcome(StageStatus.FAILED, self.dead))
        self.tries[task.key] += 1
        name = f"{task.stage}-{task.key[:12]}-{self.sweep_id}-{self.tries[task.key]}"
        flight = Flight(task, needs.of(task, self._spot(task)), name)
        self.flights[task.key] = flight
        text = self.home.asked(task, self.sweep_id)
        try:
            self.wire.submit(task.key, name, text, flight.takes, -self.rank[task.key])
        except Exception as error:  # whatever Dask says of a connection that is going down
            self._cut(f"{type(error).__name__}: {error}")

    def _spot(self, task: Task) -> str:
        """The label of where it must run; a program's timings all have the same."""
        if not task.place.startswith("HOST-") or not task.alone:
            return task.place
        mark = _program(task)
        if mark not in self.bound:
            names = [spot.name for spot in self.spots if task.place in spot.has]
            taken = Counter(self.bound.values())
            if not names:
                return task.place
            self.bound[mark] = f"NAME-{min(sorted(names), key=lambda name: taken[f'NAME-{name}'])}"
        return self.bound[mark]

    def _began(self, key: str, machine: str) -> None:
        if (flight := self.flights.get(key)) is not None and flight.began is None:
            flight.began = machine
            self.display.at(flight.task, machine)
            self.display.begin(flight.task)

    def _ended(self, wire: Wire, name: str, key: str, future: Any) -> None:
        flight = self.flights.get(key)
        if wire is not self.wire or flight is None or flight.name != name:  # of a try that nobody waits for any more
            return
        task = flight.task
        if future.status == "finished":
            wanted = partial(self._wanted, flight)
            self._aside(partial(self.home.arrived, task, future, wanted), partial(self._arrived, flight))
        elif future.status == "error":
            self._lose(task, _why(future.exception()))
        else:
            self._cut(f"what was asked of it is {future.status}")

    def _arrived(self, flight: Flight, came: Outcome | str) -> None:
        """An outcome, or why there is none."""
        if not self._wanted(flight):
            return
        if isinstance(came, str):
            self._lose(flight.task, came)
        else:
            self._settle(flight.task, came)

    def _wanted(self, flight: Flight) -> bool:
        """Whether a try is still the one that its task waits for."""
        return self.flights.get(flight.task.key) is flight

    def _lose(self, task: Task, why: str) -> None:
        flight = self.flights.pop(task.key)
        self.wire.forget(task.key)
        self.lost[task.key] += flight.began is not None
        if self.lost[task.key] >= TRIES or self.tries[task.key] >= MOST_TRIES:
            where = f" on {flight.began}" if flight.began else ""
            return self._settle(
                task, Outcome(StageStatus.FAILED, f"lost {self.tries[task.key]} times, last{where}: {why}")
            )
        if flight.began:
            self.display.say(f"{task.label} was lost on {flight.began} ({why}): it runs again")
        self._consider(task.key)

    def _settle(self, task: Task, outcome: Outcome) -> None:
        self.flights.pop(task.key, None)
        self.wire.forget(task.key)
        self.home.worker.outcomes[task.key] = outcome
        self.left.discard(task.key)
        self.display.end(task, outcome)
        for key in self.waiters[task.key]:
            self.waits[key].discard(task.key)
            if not self.waits[key] and key in self.left and key not in self.flights:
                self._consider(key)

    # Where a program is timed

    def _elsewhere(self, task: Task, known: Outcome) -> bool:
        """Whether a timing that this run has from before was taken on another machine than the others can be."""
        name = homecoming.measured_by(known)
        if not (task.alone and task.place and known.done and name):
            return False
        if any(spot.name == name for spot in self.spots):
            return self.bound.setdefault(_program(task), f"NAME-{name}") != f"NAME-{name}"
        return True

    def _move(self, flight: Flight) -> bool:
        """Have another machine time a program whose own does not come back; what that one timed is forgotten."""
        mark = _program(flight.task)
        away = self.bound.get(mark)
        names = [spot.name for spot in self.spots if flight.task.place in spot.has and f"NAME-{spot.name}" != away]
        if away is None or not names or not flight.task.place.startswith("HOST-"):
            return False
        self.bound[mark] = f"NAME-{names[0]}"
        self.display.say(
            f"{away.partition('-')[2]} does not come back: {names[0]}, which is like it, times its programs anew"
        )
        again = [task for task in self.plan.tasks.values() if task.alone and task.place and _program(task) == mark]
        fresh: list[Task] = []
        for task in again:
            if task.key in self.flights:
                self.wire.drop(task.key)
                del self.flights[task.key]
            elif task.key in self.left or not self.home.worker.outcomes[task.key].done:
                continue
            else:
                del self.home.worker.outcomes[task.key]
                self.home.forget(task)
                self.left.add(task.key)
            fresh.append(task)
        for task in fresh:
            if all(key in self.home.worker.outcomes for key in _upstream(task)):
                self._submit(task)
            else:
                self.waits[task.key] |= {key for key in _upstream(task) if key in self.left}
        return True

    # The fleet

    def _look(self) -> None:
        if self.home.worker.stop.is_set():
            raise Interrupted("the sweep is being stopped")
        until = self.home.worker.until
        if until is not None and time.monotonic() >= until:
            for flight in [one for one in self.flights.values() if one.began is None]:
                self.wire.drop(flight.task.key)
                self._settle(flight.task, Outcome(StageStatus.SKIPPED, "budget_minutes was spent before its turn"))
        try:
            self.spots = self.wire.spots()
        except Exception as error:  # whatever Dask says of a connection that is gone
            return self._cut(str(error))
        for flight in list(self.flights.values()):
            if self._wanted(flight):  # and was not moved with another one
                self._watch(flight)

    def _watch(self, flight: Flight) -> None:
        """A word about a task that no worker fits; its end after a while."""
        if any(spot.fits(flight.takes) for spot in self.spots):
            flight.unfit_since = None
            return
        if flight.unfit_since is None:
            flight.unfit_since = time.monotonic()
            wait_s = self.settings["executor"]["wait_s"]
            self.home.say_once(f"no worker fits {self._lack(flight)}: waiting up to {wait_s:g} s (executor.wait_s)")
        if time.monotonic() - flight.unfit_since < self.settings["executor"]["wait_s"] or self._move(flight):
            return
        self.wire.drop(flight.task.key)
        self._settle(flight.task, Outcome(StageStatus.FAILED, f"no worker fits {self._lack(flight)}"))

    def _lack(self, flight: Flight) -> str:
        there = ", ".join(sorted(spot.name for spot in self.spots)) or "none"
        return f"{flight.task.label} ({needs.worded(flight.takes)}); workers there: {there}"

    def _connected(self) -> Wire:
        wire = Wire(self.at, self.certificates, self.sweep_id, self.heard, self._began, self._ended)
        self.spots = wire.spots()
        return wire

    def _cut(self, why: str) -> None:
        """The scheduler is gone or has forgotten us: come back to it and ask again, or give up what is left."""
        wait_s = self.settings["executor"]["wait_s"]
        self.display.say(
            f"the scheduler at {self.at} was lost ({why}): waiting up to {wait_s:g} s for it (executor.wait_s)"
        )
        self._quietly(self.wire.close)
        began, flights, self.flights = time.monotonic(), list(self.flights.values()), {}
        while not self.home.worker.stop.is_set():
            try:
                self.wire = self._connected()
                break
            except (ConfigError, OSError) as error:
                if isinstance(error, ConfigError) and not isinstance(error, link.Unreachable):
                    raise
                if time.monotonic() - began >= wait_s:
                    self.dead = f"the scheduler at {self.at} was lost, and did not come back in {wait_s:g} s"
                    break
                time.sleep(_TICK_S)
        for flight in flights:
            self._submit(flight.task)

    def _aside(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Have something done that takes time; `then` is called in the thread that decides, and so is what goes wrong."""

        def done(future: Any) -> None:
            self.heard.put(lambda: then(future.result()))

        self.pool.submit(work).add_done_callback(done)

    @staticmethod
    def _quietly(close: Callable[[], None]) -> None:
        try:
            close()
        except Exception:  # it is going down, and Dask says so in many ways
            return


def execute(
    plan: Plan,
    run: Run,
    store: Store,
    settings: dict[str, Any],
    display: walk.Display,
    budget: int,
    outcomes: dict[str, Outcome] | None = None,
) -> dict[str, Outcome]:
    """As walk.execute, with every task that can go on a machine of the fleet."""
    at, certificates = link.settings(settings["executor"], store.root.parent)
    gate = Gate(**settings["gate"], tell=display.say)
    worker = walk.Worker(plan, run, store, display, budget, 1, gate, outcomes={} if outcomes is None else outcomes)
    minutes = settings["budget_minutes"]
    worker.until = None if minutes is None else time.monotonic() + 60 * minutes
    sweep = Sweep(plan, settings, display, homecoming.Home(worker, run, store, settings), at, certificates)
    with worker.parents, walk.interruptible(worker.stop, worker.parents):
        sweep.walk()
    return worker.outcomes


def _upstream(task: Task) -> list[str]:
    return [*task.inputs.values(), *task.after, *([task.more_of] if task.more_of else [])]


def _program(task: Task) -> tuple[str, str]:
    """What a timing is of: all processes of one belong to one machine."""
    return task.place, task.inputs.get("program") or task.inputs.get("reference") or task.key


def _barriers(tasks: list[Task]) -> dict[str, set[str]]:
    """Key of a timing -> all that is to be prepared for the timings of its place: they begin together, in rounds."""
    by_key = {task.key: task for task in tasks}
    found: dict[str, set[str]] = {}
    timed: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        if task.alone and task.place:
            timed[task.place].append(task)
    for members in timed.values():
        before, new = set[str](), [key for task in members for key in task.inputs.values()]
        while new:
            if (key := new.pop()) in by_key and key not in before and not by_key[key].alone:
                before.add(key)
                new += by_key[key].inputs.values()
        found |= {task.key: before for task in members}
    return found


def _why(error: BaseException | None) -> str:
    if type(error).__name__ == "KilledWorker":
        return "its worker was lost"
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]

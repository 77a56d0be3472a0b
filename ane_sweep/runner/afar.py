"""Runs a plan on a fleet: futures over the DAG, each a child process on some machine. `walk` is the same on this one.

what is ready       goes to Dask at once, with the resources that it takes and its place in the order (`awaited`)
what is timed       goes to one machine for all processes of a program (`binding`), and begins when all is prepared that is
                    to be timed there; Dask's resource TIME makes it one at a time, that machine's lock keeps the rest away
a lost worker       its task runs once more where it fits, then is recorded with the reason. Processes of a program that
                    were timed on a machine which does not come back are forgotten and taken anew on another like it: no
                    record holds the figures of two
a machine that cannot, as its disk is full, is not asked again for that task: another one is, or the reason is recorded
a lost scheduler    is waited for (executor.wait_s); what was asked of it is asked again (`wire`)
no worker that fits is said at once, and recorded after executor.wait_s
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
from ane_sweep.fleet import link
from ane_sweep.runner import homecoming, needs, walk
from ane_sweep.runner.awaited import Awaited
from ane_sweep.runner.binding import Binding, program
from ane_sweep.runner.gate import Gate
from ane_sweep.runner.line import Line
from ane_sweep.runner.tries import Flight, Lost, Tries, failed
from ane_sweep.runner.wire import Wire
from ane_sweep.store.cache import Store
from ane_sweep.store.runs import Run

_TICK_S = 1.0


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
    looked_up: Counter[str] = field(default_factory=Counter)  # how often it was asked whether a task is known

    def __post_init__(self) -> None:
        tasks = list(self.plan.tasks.values())
        self.awaited, self.binding = Awaited(tasks, self.home.worker.outcomes), Binding(tasks)
        self.tries = Tries(f"{self.home.run.stamp}-{random.SystemRandom().getrandbits(32):08x}")
        self.line = Line(self._connected, self.at, self.settings["executor"]["wait_s"])

    def walk(self) -> None:
        """Until every task has its outcome. Raises Interrupted."""
        with ThreadPoolExecutor(max(2, self.settings["lanes"])) as self.pool:
            self.line.open()
            try:
                for key in self.awaited.ready():
                    self._consider(key)
                looked = 0.0
                while self.awaited.left:
                    with suppress(Empty):
                        self.heard.get(timeout=_TICK_S)()
                    if time.monotonic() - looked >= _TICK_S:
                        looked = time.monotonic()
                        self._look()
            except BaseException:
                self.home.worker.stop.set()
                self.home.children_end()
                self.line.stop()
                raise
            finally:
                self.line.close()

    # One task's way

    def _consider(self, key: str) -> None:
        task = self.plan.tasks[key]
        self.looked_up[key] += 1
        known = partial(self.home.without_fleet, task, self.line.dead)
        self._aside(known, partial(self._considered, task, self.looked_up[key]))

    def _considered(self, task: Task, asked: int, known: Outcome | None) -> None:
        """Unless it has been asked again since, or what it is made from is being made anew."""
        if asked != self.looked_up[task.key] or task.key in self.flights or not self.awaited.is_ready(task.key):
            return
        if known is not None and self.binding.elsewhere(task, known, self.line.spots):
            self.home.forget(task)
            known = None
        if known is None:
            self._submit(task)
        else:
            self._settle(task, known)

    def _submit(self, task: Task) -> None:
        if self.line.dead is not None:
            return self._settle(task, failed(self.line.dead))
        name, takes = self.tries.next(task), self.binding.takes(task, self.line.spots)
        self.flights[task.key] = Flight(task, takes, name)
        if takes is None:
            return
        text = self.home.asked(task, self.tries.sweep)
        try:
            self.line.wire.submit(task.key, name, text, takes, -self.awaited.rank[task.key])
        except Exception as error:  # whatever Dask says of a connection that is going down
            self._cut(f"{type(error).__name__}: {error}")

    def _began(self, key: str, name: str, machine: str) -> None:
        flight = self.flights.get(key)
        if flight is not None and flight.name == name and flight.began is None:
            flight.began = machine
            self.display.at(flight.task, machine)
            self.display.begin(flight.task)

    def _ended(self, wire: Wire, name: str, key: str, future: Any) -> None:
        flight = self.flights.get(key)
        if (
            wire is not self.line.wire or flight is None or flight.name != name
        ):  # of a try that nobody waits for any more
            return
        task = flight.task
        if future.status == "finished":
            wanted = partial(self._wanted, flight)
            self._aside(partial(self.home.arrived, task, future, wanted), partial(self._arrived, flight))
        elif future.status == "error":
            self._lose(flight, Lost.of(future.exception()))
        else:
            self._cut(f"what was asked of it is {future.status}")

    def _arrived(self, flight: Flight, came: Outcome | Lost) -> None:
        """An outcome, or why there is none."""
        if not self._wanted(flight):
            return
        if isinstance(came, Lost):
            self._lose(flight, came)
        else:
            self._settle(flight.task, came)

    def _wanted(self, flight: Flight) -> bool:
        """Whether a try is still the one that its task waits for."""
        return self.flights.get(flight.task.key) is flight

    def _lose(self, flight: Flight, lost: Lost) -> None:
        task = flight.task
        self.line.wire.forget(task.key)
        self.home.shares.lost(on := lost.on or flight.began)
        enough = self.tries.enough(task, flight.began, lost)
        if lost.on is not None:
            self.binding.refuse(task, lost.on, lost.why)
            if not self.binding.fitting(task, self.line.spots):
                enough = f"no other worker fits {task.label}"
            enough = enough and f"{self.binding.said(task)}; {enough}"
        if enough is not None:
            return self._settle(task, failed(enough))
        if on is not None:
            self.display.say(f"{task.label} was lost on {on} ({lost.why}): it runs again")
        if lost.on is not None and self._move(task, f"{lost.on} cannot"):
            return
        del self.flights[task.key]
        self._consider(task.key)

    def _settle(self, task: Task, outcome: Outcome) -> None:
        self.flights.pop(task.key, None)
        self.line.wire.forget(task.key)
        self.home.worker.outcomes[task.key] = outcome
        self.display.end(task, outcome)
        for key in self.awaited.end(task.key):
            if key not in self.flights:
                self._consider(key)

    def _move(self, task: Task, why: str) -> bool:
        """Have another machine time a program, where one is like its own; what that one timed is forgotten."""
        if (to := self.binding.other(task, self.line.spots)) is None:
            return False
        self.display.say(f"{why}: {to}, which is like it, times its programs anew")
        self.home.shares.moved(self.binding.bound[program(task)])
        anew = self.binding.moved(task, to, self.flights, self.home.worker.outcomes)
        for one in anew:
            if self.flights.pop(one.key, None) is not None:
                self.line.drop(one.key)
            else:
                self.home.forget(one)
        self.awaited.again([one.key for one in anew])
        for one in anew:
            if self.awaited.is_ready(one.key):
                self._submit(one)
        return True

    # The fleet

    def _look(self) -> None:
        self._stopped()
        until = self.home.worker.until
        if until is not None and time.monotonic() >= until:
            for flight in [one for one in self.flights.values() if one.began is None]:
                self.line.drop(flight.task.key)
                self._settle(flight.task, Outcome(StageStatus.SKIPPED, "budget_minutes was spent before its turn"))
        if self.line.dead is not None:
            return
        try:
            self.line.look()
        except Exception as error:  # whatever Dask says of a connection that is gone
            return self._cut(str(error))
        for flight in list(self.flights.values()):
            if self._wanted(flight):  # and was not moved with another one
                self._watch(flight)

    def _stopped(self) -> None:
        if self.home.worker.stop.is_set():
            raise Interrupted("the sweep is being stopped")

    def _watch(self, flight: Flight) -> None:
        """A word about a task that no worker fits; its end after a while."""
        task, wait_s = flight.task, self.settings["executor"]["wait_s"]
        if flight.takes is not None and self.line.fits(flight.takes):
            flight.unfit_since = None
            return
        there = bool(self.binding.fitting(task, self.line.spots))
        if flight.takes is None and there:
            return self._submit(task)
        if flight.unfit_since is None:
            flight.unfit_since = time.monotonic()
            self.home.say_once(f"no worker fits {self._lack(flight)}: waiting up to {wait_s:g} s (executor.wait_s)")
        if time.monotonic() - flight.unfit_since < wait_s:
            return
        bound = self.binding.bound.get(program(task))
        if self._move(task, f"{bound} does not come back"):
            return
        self.line.drop(task.key)
        if there:
            self._submit(task)
        else:
            self._settle(task, failed(f"no worker fits {self._lack(flight)}"))

    def _lack(self, flight: Flight) -> str:
        takes = flight.takes or needs.of(flight.task, flight.task.place)
        names = {place.label: place.names for place in self.plan.places.values()}
        return f"{flight.task.label}, which needs {needs.describe(takes, names)}; workers there: {self.line.there()}"

    def _connected(self) -> Wire:
        return Wire(self.at, self.certificates, self.tries.sweep, self.heard, self._began, self._ended)

    def _cut(self, why: str) -> None:
        """The scheduler is gone or has forgotten us: come back to it and ask again, or give up what is left."""
        self.display.say(
            f"the scheduler at {self.at} was lost ({why}): waiting up to {self.line.wait_s:g} s for it (executor.wait_s)"
        )
        flights, self.flights = list(self.flights.values()), {}
        self.line.back(self.home.worker.stop)
        self._stopped()
        for flight in flights:  # each in its turn: should it go away again meanwhile, that is one more cut
            self.heard.put(partial(self._again, flight.task))

    def _again(self, task: Task) -> None:
        if task.key not in self.flights and self.awaited.is_ready(task.key):
            self._submit(task)

    def _aside(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Have something done that takes time; `then` is called in the thread that decides, and so is what goes wrong."""

        def done(future: Any) -> None:
            self.heard.put(lambda: then(future.result()))

        self.pool.submit(work).add_done_callback(done)


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
    at, certificates = link.settings(settings["executor"])
    gate = Gate(**settings["gate"], tell=display.say)
    worker = walk.Worker(plan, run, store, display, budget, 1, gate, outcomes={} if outcomes is None else outcomes)
    minutes = settings["budget_minutes"]
    worker.until = None if minutes is None else time.monotonic() + 60 * minutes
    sweep = Sweep(plan, settings, display, homecoming.Home(worker, run, store, settings), at, certificates)
    with worker.parents, walk.interruptible(worker.stop, worker.parents):
        sweep.walk()
    run.note_machines(sweep.home.shares.machines)
    return worker.outcomes

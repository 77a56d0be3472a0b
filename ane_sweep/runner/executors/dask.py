"""The Dask executor: each task of a plan is a Dask future, and a child process on some machine of a fleet.

A ready task goes to Dask at once, with its resources and its priority (`ready_queue`, `placement_rules`).

timing             All processes that time a program go to one machine. They begin when everything to be timed there is
                   prepared. Dask's resource TIME allows one at a time, and that machine's lock excludes other work.
lost worker        Its task runs once more on a fitting worker; if lost again, it is recorded as failed. If the machine
                   that timed a program does not come back, its timings are dropped and repeated on another equivalent machine: no record
has figures of two machines.
unable machine     A machine that cannot do a task, for example because its disk is full, does not get it again.
lost scheduler     The sweep waits for it (executor.wait_s) and submits its tasks again (`dask_connection`).
no fitting worker  A message is shown at once; after executor.wait_s the task is recorded as failed.
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
from queue import Empty
from typing import TypeVar

from ane_sweep.bridge.executors import Executor
from ane_sweep.bridge.plan import Outcome, Plan
from ane_sweep.bridge.protocol import Interrupted
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.bridge.task import Task
from ane_sweep.fleet import link
from ane_sweep.runner.children import stop_on_signals
from ane_sweep.runner.dask_connection import Calls, SchedulerConnection, SchedulerSession
from ane_sweep.runner.placement_rules import PlacementRules, describe_resources, program_of, required_resources
from ane_sweep.runner.ready_queue import Attempt, LostAttempt, ReadyQueue, RetryPolicy
from ane_sweep.runner.result_collector import ResultCollector
from ane_sweep.runner.task_runner import Display, TaskRunner

EXECUTOR = Executor(help="the workers of a fleet", places="ane_sweep.fleet.members:find_places")
_TICK_S = 1.0


T = TypeVar("T")


@dataclass
class DaskExecutor:
    """The executor's state. It decides about all tasks in one thread; slow work runs in `pool`, and its results come
    back through `calls`.
    """

    plan: Plan
    settings: RunSettings
    display: Display
    collector: ResultCollector
    address: str
    certificates: Path
    calls: Calls = field(default_factory=Calls)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    lookups: Counter[str] = field(default_factory=Counter)  # of each task's outcome, in the cache and the shared store

    def __post_init__(self) -> None:
        tasks = list(self.plan.tasks.values())
        self.queue, self.rules = ReadyQueue(tasks, self.collector.runner.outcomes), PlacementRules(tasks)
        self.retries = RetryPolicy(f"{self.collector.run.stamp}-{random.SystemRandom().getrandbits(32):08x}")
        events = (self.calls, self._note_start, self._note_end)
        connect = partial(SchedulerSession, self.address, self.certificates, self.retries.sweep, *events)
        self.connection = SchedulerConnection(connect, self.address, self.settings.executor.wait_s)

    def run(self) -> None:
        """Run until every task has its outcome. Raises Interrupted."""
        with ThreadPoolExecutor(max(2, self.settings.lanes)) as self.pool:
            self.connection.open()
            try:
                for key in self.queue.list_ready():
                    self._look_up(key)
                refreshed = 0.0
                while self.queue.unfinished:
                    with suppress(Empty):
                        self.calls.get(timeout=_TICK_S)()
                    if time.monotonic() - refreshed >= _TICK_S:
                        refreshed = time.monotonic()
                        self._refresh()
            except BaseException:
                self.collector.runner.stop.set()
                self.collector.runner.children.kill_all()
                self.connection.stop()
                raise
            finally:
                self.connection.close()

    # From a ready task to its outcome

    def _look_up(self, key: str) -> None:
        """Find out whether a ready task has an outcome already, and submit it if not."""
        task = self.plan.tasks[key]
        self.lookups[key] += 1
        work = partial(self.collector.resolve_without_fleet, task, self.connection.dead)
        self._run_in_background(work, partial(self._take_lookup, task, self.lookups[key]))

    def _take_lookup(self, task: Task, lookup: int, outcome: Outcome | None) -> None:
        if lookup != self.lookups[task.key] or task.key in self.attempts or not self.queue.is_ready(task.key):
            return  # it was looked up again since, or its inputs are being made anew
        if outcome is not None and self.rules.was_measured_elsewhere(task, outcome, self.connection.workers):
            self.collector.forget(task)
            outcome = None
        if outcome is None:
            self._submit(task)
        else:
            self._finish(task, outcome)

    def _submit(self, task: Task) -> None:
        if self.connection.dead is not None:
            return self._finish(task, Outcome(StageStatus.FAILED, self.connection.dead))
        name, resources = self.retries.name_attempt(task), self.rules.choose_resources(task, self.connection.workers)
        self.attempts[task.key] = Attempt(task, resources, name)
        if resources is None:
            return
        text = self.collector.encode(task, self.retries.sweep)
        try:
            self.connection.session.submit(task.key, name, text, resources, -self.queue.rank[task.key])
        except Exception as error:  # Dask raises errors of many types while a connection goes down
            self._reconnect(f"{type(error).__name__}: {error}")

    def _note_start(self, key: str, name: str, machine: str) -> None:
        attempt = self.attempts.get(key)
        if attempt is not None and attempt.name == name and attempt.began_on is None:
            attempt.began_on = machine
            self.display.at(attempt.task, machine)
            self.display.begin(attempt.task)

    def _note_end(self, session: SchedulerSession, name: str, key: str, future: link.Future) -> None:
        attempt = self.attempts.get(key)
        if session is not self.connection.session or attempt is None or attempt.name != name:
            return  # of an attempt that was given up
        if future.status == "finished":
            work = partial(self.collector.collect, attempt.task, future, partial(self._is_current, attempt))
            self._run_in_background(work, partial(self._take_result, attempt))
        elif future.status == "error":
            self._lose(attempt, LostAttempt.from_error(future.exception()))
        else:
            self._reconnect(f"what was asked of it is {future.status}")

    def _is_current(self, attempt: Attempt) -> bool:
        """Return True if a task still waits for this attempt."""
        return self.attempts.get(attempt.task.key) is attempt

    def _take_result(self, attempt: Attempt, result: Outcome | LostAttempt) -> None:
        if self._is_current(attempt):
            if isinstance(result, LostAttempt):
                self._lose(attempt, result)
            else:
                self._finish(attempt.task, result)

    def _lose(self, attempt: Attempt, lost: LostAttempt) -> None:
        """Try a task again after a lost attempt, or record why not."""
        task, machine = attempt.task, lost.on or attempt.began_on
        self.connection.session.forget(task.key)
        self.collector.tally.add(machine, lost=1)
        reason = self.retries.give_up(task, attempt.began_on, lost)
        if lost.on is not None:
            refusals = self.rules.exclude(task, lost.on, lost.reason)
            if not self.rules.find_fitting(task, self.connection.workers):
                reason = f"no other worker fits {task.label}"
            reason = reason and f"{refusals}; {reason}"
        if reason is not None:
            return self._finish(task, Outcome(StageStatus.FAILED, reason))
        if machine is not None:
            self.display.say(f"{task.label} was lost on {machine} ({lost.reason}): it runs again")
        if lost.on is not None and self._move_program(task, f"{lost.on} cannot"):
            return
        del self.attempts[task.key]
        self._look_up(task.key)

    def _finish(self, task: Task, outcome: Outcome) -> None:
        self.attempts.pop(task.key, None)
        self.connection.session.forget(task.key)
        self.collector.runner.outcomes[task.key] = outcome
        self.display.end(task, outcome)
        for key in self.queue.finish(task.key):
            if key not in self.attempts:
                self._look_up(key)

    def _move_program(self, task: Task, why: str) -> bool:
        """Let another equivalent machine time a task's program again. Return False if no other fits."""
        if (to := self.rules.find_substitute(task, self.connection.workers)) is None:
            return False
        self.display.say(f"{why}: {to}, which is like it, times its programs anew")
        self.collector.tally.add(self.rules.bound[program_of(task)], moved=1)
        timings = self.rules.move(task, to, self.attempts, self.collector.runner.outcomes)
        for timing in timings:
            if self.attempts.pop(timing.key, None) is not None:
                self.connection.drop(timing.key)
            else:
                self.collector.forget(timing)
        self.queue.reopen([timing.key for timing in timings])
        for timing in timings:
            if self.queue.is_ready(timing.key):
                self._submit(timing)
        return True

    # The fleet

    def _refresh(self) -> None:
        """Once a second: skip tasks after the deadline, list the workers, and check each attempt."""
        self._raise_if_stopped()
        deadline = self.collector.runner.deadline
        if deadline is not None and time.monotonic() >= deadline:
            for attempt in [attempt for attempt in self.attempts.values() if attempt.began_on is None]:
                self.connection.drop(attempt.task.key)
                self._finish(attempt.task, Outcome(StageStatus.SKIPPED, "budget_minutes was spent before its turn"))
        if self.connection.dead is not None:
            return
        try:
            self.connection.refresh()
        except Exception as error:  # Dask raises errors of many types once a connection is gone
            return self._reconnect(str(error))
        for attempt in list(self.attempts.values()):
            if self._is_current(attempt):  # it may have moved with another one's program
                self._check_fit(attempt)

    def _raise_if_stopped(self) -> None:
        if self.collector.runner.stop.is_set():
            raise Interrupted("the sweep is being stopped")

    def _check_fit(self, attempt: Attempt) -> None:
        """Tell the user about a task that fits no worker; after executor.wait_s move it or record it as failed."""
        task, wait_s = attempt.task, self.connection.wait_s
        if attempt.resources is not None and self.connection.has_fitting_worker(attempt.resources):
            attempt.unfit_since = None
            return
        fits_now = bool(self.rules.find_fitting(task, self.connection.workers))
        if attempt.resources is None and fits_now:
            return self._submit(task)
        if attempt.unfit_since is None:
            attempt.unfit_since = time.monotonic()
            self.collector.say_once(
                f"no worker fits {self._describe_need(attempt)}: waiting up to {wait_s:g} s (executor.wait_s)"
            )
        if time.monotonic() - attempt.unfit_since < wait_s:
            return
        if self._move_program(task, f"{self.rules.bound.get(program_of(task))} does not come back"):
            return
        self.connection.drop(task.key)
        if fits_now:
            self._submit(task)
        else:
            self._finish(task, Outcome(StageStatus.FAILED, f"no worker fits {self._describe_need(attempt)}"))

    def _describe_need(self, attempt: Attempt) -> str:
        needed = attempt.resources or required_resources(attempt.task, attempt.task.place)
        words = describe_resources(needed, {place.label: place.names for place in self.plan.places.values()})
        workers = ", ".join(sorted(worker.name for worker in self.connection.workers)) or "none"
        return f"{attempt.task.label}, which needs {words}; workers there: {workers}"

    def _reconnect(self, why: str) -> None:
        """Wait for a scheduler that is gone or has forgotten this sweep, then submit all attempts again."""
        self.display.say(
            f"the scheduler at {self.address} was lost ({why}): waiting up to {self.connection.wait_s:g} s for it "
            "(executor.wait_s)"
        )
        attempts, self.attempts = list(self.attempts.values()), {}
        self.connection.reconnect(self.collector.runner.stop)
        self._raise_if_stopped()

        def submit_again(task: Task) -> None:
            if task.key not in self.attempts and self.queue.is_ready(task.key):
                self._submit(task)

        for attempt in attempts:  # one call each: if the scheduler goes away meanwhile, that is one more reconnect
            self.calls.put(partial(submit_again, attempt.task))

    def _run_in_background(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run `work` in a background thread; call `then` with its result (or re-raise its error) in the deciding thread."""
        self.pool.submit(work).add_done_callback(lambda done: self.calls.put(lambda: then(done.result())))


def execute(
    runner: TaskRunner, settings: RunSettings, meanwhile: Callable[[], None] | None = None
) -> dict[str, Outcome]:
    """Run a plan on a fleet (see `Execute`). `meanwhile` is not called: this machine collects results as they come."""
    address, certificates = link.settings(settings.executor)
    minutes, collector = settings.budget_minutes, ResultCollector(runner, settings)
    runner.deadline = None if minutes is None else time.monotonic() + 60 * minutes
    executor = DaskExecutor(runner.plan, settings, runner.display, collector, address, certificates)
    with runner.fork_servers, stop_on_signals(runner.stop, runner.fork_servers):
        executor.run()
    runner.run.note(machines=executor.collector.tally.as_plain())
    return runner.outcomes

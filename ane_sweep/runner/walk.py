"""Walks the plan: skip what is done, run the rest isolated, block dependants. Preparation in lanes, timing alone."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import joblib

from ane_sweep.bridge import trouble
from ane_sweep.bridge.outcome import DONE, Outcome
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.protocol import STDERR
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import AUTO_REPEATS, CHEAP_S, Limits, Task, TaskRequest, TaskResult
from ane_sweep.errors import StoreError
from ane_sweep.runner import isolate
from ane_sweep.runner.children import Children
from ane_sweep.runner.gate import Gate
from ane_sweep.runner.lanes import Lanes, in_rounds
from ane_sweep.runner.warm import Parents, imports
from ane_sweep.store import files, locks
from ane_sweep.store.cache import Store
from ane_sweep.store.runs import Run
from ane_sweep.store.shared import SHARED, Shared, open_shared

GIB = 1 << 30
UNSTORED = {name for name, stage in STAGES.items() if not stage.stored}
# Stored, and runs the program: what Core ML printed meanwhile belongs to every later verdict.
HEARD = {name for name, stage in STAGES.items() if stage.stored and stage.runs_program}
STDERR_BYTES = 1 << 20  # of it
HEAVY_BYTES = 2 * GIB  # parameters (fp32) from which one task may have all cores
PREPARING_SHARE = 0.7  # of a time budget: then the rest is for timing what is prepared


class Display(Protocol):
    """What the runner tells whoever watches. Nothing is called while a task is being timed here; `at`: a machine of a fleet
    has begun a task."""

    def begin(self, task: Task) -> None: ...
    def end(self, task: Task, outcome: Outcome) -> None: ...
    def freeze(self) -> None: ...
    def say(self, line: str) -> None: ...
    def at(self, task: Task, machine: str) -> None: ...


def execute(
    plan: Plan,
    run: Run,
    store: Store,
    settings: dict[str, Any],
    display: Display,
    budget: int,
    outcomes: dict[str, Outcome] | None = None,
    beside: Callable[[], None] | None = None,
) -> dict[str, Outcome]:
    """Run every task of the plan that is not done; returns task key -> Outcome. Raises KeyboardInterrupt.

    budget     bytes of memory that all lanes may use together
    outcomes   of tasks that are done already; what is run is added to them
    beside     what this process does while others prepare; it has ended before the first timing

    After settings["budget_minutes"] no task begins any more (preparation ends at 70 % of them): what is left is skipped.
    """
    worker = Worker(
        plan,
        run,
        store,
        display,
        budget,
        max(1, (os.cpu_count() or 1) // settings["lanes"]),
        Gate(**settings["gate"], tell=display.say),
        outcomes={} if outcomes is None else outcomes,
    )
    todo = [task for task in plan.tasks.values() if task.key not in worker.outcomes]
    prepared = [task for task in todo if not task.alone]
    began, minutes = time.monotonic(), settings["budget_minutes"]
    worker.until = None if minutes is None else began + PREPARING_SHARE * 60 * minutes
    lanes = Lanes(prepared, worker.outcomes, budget, longest_first=minutes is None)  # else the most informative first
    if settings["store"] is not None:
        worker.shared = open_shared(settings["store"], display.say, stop=worker.stop)
    with worker.parents, interruptible(worker.stop, worker.parents):
        aside = threading.Thread(target=beside)
        aside.start()
        joblib.Parallel(n_jobs=settings["lanes"], backend="threading")(
            joblib.delayed(lanes.walk)(worker.perform) for _ in range(settings["lanes"])
        )
        if lanes.error is not None:
            raise lanes.error
        aside.join()
        display.freeze()
        worker.until = None if minutes is None else began + 60 * minutes
        for task in in_rounds([task for task in todo if task.alone]):
            worker.outcomes[task.key] = worker.perform(task)
    if worker.shared is not None:
        worker.shared.settle(store)
        run.note_shared(worker.shared.url, worker.shared.tally.as_plain())
        display.say(worker.shared.told())
    return worker.outcomes


@contextlib.contextmanager
def interruptible(stop: threading.Event, parents: Parents) -> Iterator[None]:
    """Ctrl-C and SIGTERM end every running worker at once, in whichever lane, and then become KeyboardInterrupt."""

    def end(number: int, frame: Any) -> None:
        stop.set()
        isolate.CHILDREN.kill_all()
        parents.stop()

    isolate.CHILDREN.reopen()
    in_main = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)} if in_main else {}
    try:
        yield
    except (isolate.Interrupted, StoreError):
        if stop.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@dataclass
class Worker:
    """Performs one task at a time for whichever lane asks."""

    plan: Plan
    run: Run
    store: Store
    display: Display
    budget: int
    threads: int
    gate: Gate
    stop: threading.Event = field(default_factory=threading.Event)
    parents: Parents = field(default_factory=Parents)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    children: Children = isolate.CHILDREN
    until: float | None = None  # of time.monotonic(): from then on nothing is begun
    shared: Shared | None = None  # a store that other machines have as well

    def perform(self, task: Task) -> Outcome:
        """Skip, block, reuse or run a task. Raises isolate.Interrupted when the sweep is being stopped."""
        outcome = self.without_running(task)
        if outcome is None:
            if task.stage in UNSTORED:
                outcome = self._run(task, self.run.task_folder(task) / "out")
            else:
                wait = self._wait(f"another sweep is making {task.label}: waiting for it")
                with self.store.lock(task.stage, task.key, wait):
                    outcome = self._cached(task) or self._pulled(task) or self._make_anew(task)
        self._push(task, outcome)
        self.display.end(task, outcome)
        return outcome

    def without_running(self, task: Task) -> Outcome | None:
        """What is known of a task, or was decided, without a process; None: it is to be run."""
        if task.unavailable:
            return Outcome(StageStatus.UNAVAILABLE, task.unavailable)
        upstream = [(self.plan.tasks[key], self.outcomes[key]) for key in (*task.inputs.values(), *task.after)]
        for needed, outcome in upstream:
            if not outcome.done:
                verb = "was blocked" if outcome.status == StageStatus.BLOCKED else f"ended as {outcome.status}"
                return Outcome(StageStatus.BLOCKED, f"needs {needed.stage}, which {verb}")
        if task.more_of and (known := further(self.outcomes[task.more_of])) is not None:
            return known
        if (stored := self._cached(task)) is not None:
            return stored
        earlier = self.run.earlier_result(task)
        if earlier and (task.stage in UNSTORED or earlier.status != "ok") and not _worth_another_try(earlier):
            return self._outcome(earlier, task, self.run.task_folder(task) / "out")
        if self.until is not None and time.monotonic() >= self.until:
            return Outcome(StageStatus.SKIPPED, "budget_minutes was spent before its turn")
        return None

    def _cached(self, task: Task) -> Outcome | None:
        if task.stage in UNSTORED:
            return None
        folder = self.store.lookup(task.stage, task.key)
        if folder is None:
            return None
        with self._machine(alone=False):  # gigabytes may be read: not while another one times
            if self.store.fault(task.stage, task.key, self._made_from(task)):
                return None
        result = TaskResult.read(folder / files.RESULT)
        if result is None:
            return None
        result.seconds = result.peak_bytes = result.exit = None
        return Outcome(StageStatus.CACHED, None, result, folder, folder / STDERR)

    def _pulled(self, task: Task) -> Outcome | None:
        if self.shared is None or task.stage not in SHARED:
            return None
        with self._machine(alone=False):
            found = self.shared.pull(self.store, task.stage, task.key, self._made_from(task))
        return None if found is None else self._cached(task)

    def _push(self, task: Task, outcome: Outcome) -> None:
        if self.shared is None or task.stage not in SHARED or not outcome.done:
            return
        with self.store.lock(task.stage, task.key), self._machine(alone=False):
            self.shared.push(self.store, task.stage, task.key)

    def _make_anew(self, task: Task) -> Outcome:
        """Make what is not there; what lies in its place, damaged, is deleted first, and the stage's reason says so."""
        try:
            fault = self.store.fault(task.stage, task.key, self._made_from(task))
            if fault:
                self.store.remove(task.stage, task.key)
            outcome = self._make(task)
            if self.shared is not None:
                fault = fault or self.shared.damage(task.stage, task.key)
        except StoreError as error:  # a full disk costs this task, not the sweep
            return Outcome(StageStatus.FAILED, str(error))
        if fault:
            again = f"made again, as the stored one could not be used: {fault}"
            outcome.reason = again if outcome.reason is None else f"{outcome.reason} ({again})"
        return outcome

    def _make(self, task: Task) -> Outcome:
        aside = self.store.stage_aside(task.stage, task.key)
        try:
            outcome = self._run(task, aside)
            if outcome.status == StageStatus.OK:
                made_from = self._made_from(task)
                if task.stage in HEARD or not any(aside.iterdir()):  # an artifact without files is never a cache hit
                    _keep_head(outcome.stderr, aside / STDERR)
                outcome.folder = self.store.commit(aside, task.stage, task.key, outcome.result, made_from)
            return outcome
        finally:
            self.store.discard(aside)

    def _machine(self, alone: bool) -> contextlib.AbstractContextManager[None]:
        doing = "uses this cache: timing waits for it" if alone else "is timing: preparing waits for it"
        return self.store.machine_lock(not alone, self._wait(f"another sweep {doing}"))

    def _wait(self, sentence: str) -> locks.Waiting:
        """Wait for another sweep until this one is stopped, and say so once a sweep."""

        def tell() -> None:
            if sentence not in self.told:
                self.told.add(sentence)
                self.display.say(sentence)

        return locks.Waiting(self.stop, tell)

    def _made_from(self, task: Task) -> dict[str, files.Origin]:
        """The stored artifacts that a task is given, and what they hold."""
        found = {}
        for role, key in task.inputs.items():
            folder = self.outcomes[key].folder
            if self._is_stored(key) and folder is not None:
                found[role] = files.Origin(key, files.digest(folder))
        return found

    def _damaged_input(self, task: Task) -> str | None:
        """What happened to an input since it was made or found whole: nothing is read again unless it has changed."""
        for key in task.inputs.values():
            folder = self.outcomes[key].folder
            if self._is_stored(key) and folder and (found := files.damage(folder, content=True)):
                return f"{self.plan.tasks[key].stage} was damaged meanwhile: {found}; the same command makes it again"
        return None

    def _is_stored(self, key: str) -> bool:
        return self.plan.tasks[key].stage not in UNSTORED

    def _run(self, task: Task, out: Path) -> Outcome:
        self.display.begin(task)
        folder = self.run.task_folder(task)
        try:
            self.run.make_task_folder(task)
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # costs this task, not the sweep
            full = trouble.is_out_of_space(error)
            return Outcome(StageStatus.FAILED, trouble.no_space_reason(out) if full else str(error))
        heavy = task.alone or task.work >= HEAVY_BYTES
        request = TaskRequest(
            stage=task.stage,
            key=task.key,
            params=task.params,
            inputs=task.folders | {role: self._folder(key) for role, key in task.inputs.items()},
            out=out,
            tmp=folder / "tmp",
            limits=Limits(task.memory_limit(self.budget)),
            fault=task.fault,
            threads=None if heavy else self.threads,
        )
        env = {} if STAGES[task.stage].network else {"HF_HUB_OFFLINE": "1"}
        with self._machine(task.alone):
            if task.round:
                request = replace(request, params={**task.params, "gate": vars(self.gate.wait(self.stop))})
            self.parents.begin(task.round)
            result = isolate.run_task(
                request, folder, timeout_s=task.limits["timeout_s"], watch_memory=not task.alone, env=env,
                parents=self.parents, children=self.children, loads=imports(task.stage, task.params),
            )  # fmt: skip
            self.run.seal(task)
        if damaged := self._damaged_input(task):
            (folder / "result.json").unlink(missing_ok=True)  # a resumed run shall not take it for a result
            return Outcome(StageStatus.FAILED, damaged)
        outcome = self._outcome(result, task, out)
        if outcome.done:
            seconds = result.seconds or 0.0
            self.store.record_history(stage=task.stage, work=task.work, seconds=seconds, peak_bytes=result.peak_bytes)
        return outcome

    def _folder(self, key: str) -> Path:
        folder = self.outcomes[key].folder
        assert folder is not None  # it is done: see without_running
        return folder

    def _outcome(self, result: TaskResult, task: Task, out: Path) -> Outcome:
        status = StageStatus(result.status)
        fetched = result.facts.get("folder") if status in DONE else None
        stderr = self.run.task_folder(task) / STDERR
        return Outcome(status, result.reason, result, Path(fetched) if fetched else out, stderr)


def _keep_head(source: Path | None, target: Path) -> None:
    """What was printed, as far as anyone reads it. A full disk is met again when the artifact is stored."""
    if source is not None:
        with contextlib.suppress(OSError), open(source, "rb") as file:
            target.write_bytes(file.read(STDERR_BYTES))


def further(first: Outcome) -> Outcome | None:
    """What the first timing of latency.repeats=auto makes of the others; None where they are to be taken."""
    if first.status in (StageStatus.UNAVAILABLE, StageStatus.SKIPPED):
        return Outcome(first.status, first.reason)
    if not first.done:
        return Outcome(StageStatus.BLOCKED, f"the first process that timed it ended as {first.status}")
    if (took := first.result.seconds or 0.0) <= CHEAP_S:
        return None
    return Outcome(
        StageStatus.SKIPPED,
        f"the first process took {took:.0f} s: latency.repeats=auto times what takes over {CHEAP_S:.0f} s once; "
        f"latency.repeats={AUTO_REPEATS} times it in {AUTO_REPEATS}",
    )


def _worth_another_try(earlier: TaskResult) -> bool:
    """Whether an interrupted run's failure was the host's passing trouble: a full disk, by now perhaps emptied."""
    return earlier.status == "failed" and trouble.is_no_space_reason(earlier.reason)

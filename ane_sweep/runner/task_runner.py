"""The execution of one task: reuse a stored result, or run a child process; a task that depends on a failure is blocked."""

import contextlib
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ane_sweep import native_errors
from ane_sweep.bridge import protocol
from ane_sweep.bridge.plan import DONE, Outcome, Plan
from ane_sweep.bridge.protocol import STDERR
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import AUTO_REPEATS, CHEAP_S, Limits, Task, TaskRequest, TaskResult
from ane_sweep.errors import StoreError
from ane_sweep.runner import isolate
from ane_sweep.runner.children import CHILDREN, Children
from ane_sweep.runner.fork_server import ForkServers, list_imports
from ane_sweep.runner.gate import TimingGate
from ane_sweep.store import files, locks
from ane_sweep.store.cache import Store
from ane_sweep.store.runs import Run
from ane_sweep.store.shared import SHARED, Shared

UNSTORED = {name for name, stage in STAGES.items() if not stage.stored}
# Stored, and runs the program: the artifact keeps what Core ML printed, because later verdicts read it.
_KEEPS_STDERR = {name for name, stage in STAGES.items() if stage.stored and stage.runs_program}
STDERR_BYTES = 1 << 20  # of a task's stderr that are kept
_HEAVY_BYTES = 2 << 30  # parameters (fp32) from which one task may have all cores


class Display(Protocol):
    """A display of a sweep's progress. The runner calls no method while a task is timed on this machine."""

    def begin(self, task: Task) -> None: ...
    def end(self, task: Task, outcome: Outcome) -> None: ...
    def freeze(self) -> None:
        """Stop redrawing: preparation has ended, and timing begins."""

    def say(self, line: str) -> None: ...
    def at(self, task: Task, machine: str) -> None:
        """Note that a machine of a fleet has begun a task."""


class QuietDisplay:
    """A display that shows nothing."""

    def begin(self, task: Task) -> None: ...
    def end(self, task: Task, outcome: Outcome) -> None: ...
    def freeze(self) -> None: ...
    def say(self, line: str) -> None: ...
    def at(self, task: Task, machine: str) -> None: ...


@dataclass
class TaskRunner:
    """A runner of tasks, one at a time; several threads may call it at once.

    budget    bytes of memory that all tasks may use together
    threads   threads that the libraries of one preparation may use
    deadline  time (time.monotonic()) after which no task begins
    shared    the store that this machine shares with others, if there is one
    """

    plan: Plan
    run: Run
    store: Store
    display: Display
    budget: int
    threads: int
    gate: TimingGate
    stop: threading.Event = field(default_factory=threading.Event)
    fork_servers: ForkServers = field(default_factory=ForkServers)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    children: Children = CHILDREN
    deadline: float | None = None
    shared: Shared | None = None
    _shown: set[str] = field(default_factory=set)

    def perform(self, task: Task) -> Outcome:
        """Skip, block, reuse or run a task and return its outcome. Raises isolate.Interrupted when the sweep is being stopped."""
        outcome = self.resolve_without_running(task)
        if outcome is None:
            if task.stage in UNSTORED:
                outcome = self._run(task, self.run.task_folder(task) / "out")
            else:
                wait = self._wait(f"another sweep is making {task.label}: waiting for it")
                with self.store.lock(task.stage, task.key, wait):
                    outcome = self._reuse(task) or self._pull(task) or self._make_anew(task)
        self._push(task, outcome)
        self.display.end(task, outcome)
        return outcome

    def resolve_without_running(self, task: Task) -> Outcome | None:
        """Return the outcome of a task that needs no process, or None if the task must run."""
        if task.unavailable:
            return Outcome(StageStatus.UNAVAILABLE, task.unavailable)
        upstream = [(self.plan.tasks[key], self.outcomes[key]) for key in (*task.inputs.values(), *task.after)]
        for needed, outcome in upstream:
            if not outcome.done:
                return outcome.block(needed.stage)
        if task.more_of and (decided := decide_further_timing(self.outcomes[task.more_of])) is not None:
            return decided
        if (stored := self._reuse(task)) is not None:
            return stored
        earlier = self.run.earlier_result(task)
        if earlier and (task.stage in UNSTORED or earlier.status != "ok"):
            was_full = earlier.status == "failed" and native_errors.is_no_space_reason(earlier.reason)
            if not was_full:  # a disk may have room by now
                return self._outcome(earlier, task, self.run.task_folder(task) / "out")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return Outcome(StageStatus.SKIPPED, "budget_minutes was spent before its turn")
        return None

    def _reuse(self, task: Task) -> Outcome | None:
        """Return the outcome of a task if its artifact is intact in the cache, else None."""
        if task.stage in UNSTORED:
            return None
        folder = self.store.lookup(task.stage, task.key)
        if folder is None:
            return None
        with self._machine_lock(alone=False):  # this may read gigabytes: not while another sweep times
            if self.store.fault(task.stage, task.key, self._origins(task)):
                return None
        result = TaskResult.read(folder / files.RESULT)
        if result is None:
            return None
        result.seconds = result.peak_bytes = result.exit = None
        return Outcome(StageStatus.CACHED, None, result, folder, folder / STDERR)

    def _pull(self, task: Task) -> Outcome | None:
        """Copy a task's artifact from the shared store. Return its outcome, or None if the store lacks it."""
        if self.shared is None or task.stage not in SHARED:
            return None
        with self._machine_lock(alone=False):
            folder = self.shared.pull(self.store, task.stage, task.key, self._origins(task))
        return None if folder is None else self._reuse(task)

    def _push(self, task: Task, outcome: Outcome) -> None:
        if self.shared is None or task.stage not in SHARED or not outcome.done:
            return
        with self.store.lock(task.stage, task.key), self._machine_lock(alone=False):
            self.shared.push(self.store, task.stage, task.key)

    def _make_anew(self, task: Task) -> Outcome:
        """Make an artifact after deleting a damaged one in its place; the outcome's reason mentions the damage."""
        try:
            fault = self.store.fault(task.stage, task.key, self._origins(task))
            if fault:
                self.store.remove(task.stage, task.key)
            aside = self.store.stage_aside(task.stage, task.key)
            try:
                outcome = self._run(task, aside)
                if outcome.status == StageStatus.OK:
                    origins = self._origins(task)
                    # An artifact without files is never a cache hit.
                    if outcome.stderr is not None and (task.stage in _KEEPS_STDERR or not any(aside.iterdir())):
                        # A full disk is met again below.
                        with contextlib.suppress(OSError), open(outcome.stderr, "rb") as file:
                            (aside / STDERR).write_bytes(file.read(STDERR_BYTES))
                    outcome.folder = self.store.commit(aside, task.stage, task.key, outcome.result, origins)
            finally:
                self.store.discard(aside)
            if self.shared is not None:
                fault = fault or self.shared.damage(task.stage, task.key)
        except StoreError as error:  # a full disk costs this task, not the sweep
            return Outcome(StageStatus.FAILED, str(error))
        if fault:
            again = f"made again, as the stored one could not be used: {fault}"
            outcome.reason = again if outcome.reason is None else f"{outcome.reason} ({again})"
        return outcome

    def _machine_lock(self, alone: bool) -> contextlib.AbstractContextManager[None]:
        doing = "uses this cache: timing waits for it" if alone else "is timing: preparing waits for it"
        return self.store.machine_lock(not alone, self._wait(f"another sweep {doing}"))

    def _wait(self, sentence: str) -> locks.Waiting:
        """Return the settings for waiting for another sweep: until this one is stopped, with one message per sweep."""

        def tell() -> None:
            if sentence not in self._shown:
                self._shown.add(sentence)
                self.display.say(sentence)

        return locks.Waiting(self.stop, tell)

    def _origins(self, task: Task) -> dict[str, files.Origin]:
        """Return the stored artifacts that a task is made from, by role, with digests of their content."""
        return {
            role: files.Origin(key, files.digest(folder))
            for role, key in task.inputs.items()
            if self._is_stored(key) and (folder := self.outcomes[key].folder) is not None
        }

    def _damaged_input(self, task: Task) -> str | None:
        """Describe an input that was damaged while the task ran, or return None. Only files that changed are read again."""
        for key in task.inputs.values():
            folder = self.outcomes[key].folder
            if self._is_stored(key) and folder and (fault := files.damage(folder, content=True)):
                return f"{self.plan.tasks[key].stage} was damaged meanwhile: {fault}; the same command makes it again"
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
            full = native_errors.is_out_of_space(error)
            return Outcome(StageStatus.FAILED, native_errors.no_space_reason(out) if full else str(error))
        heavy = task.alone or task.work >= _HEAVY_BYTES
        request = TaskRequest(
            stage=task.stage,
            key=task.key,
            params=task.params,
            inputs=task.folders
            | {role: path for role, key in task.inputs.items() if (path := self.outcomes[key].folder)},
            out=out,
            tmp=folder / "tmp",
            limits=Limits(task.memory_limit(self.budget)),
            threads=None if heavy else self.threads,
        )
        env = {} if STAGES[task.stage].network else {"HF_HUB_OFFLINE": "1"}
        if installed := [request.inputs[role] / protocol.SITE for role in protocol.INSTALLS if role in request.inputs]:
            env |= {"PYTHONPATH": protocol.python_path(*installed), "ANE_SWEEP_GROW": "0"}
        with self._machine_lock(task.alone):
            if task.round:
                request = replace(request, params={**task.params, "gate": vars(self.gate.wait(self.stop))})
            self.fork_servers.begin_round(task.round)
            result = isolate.run_task(
                request, folder, timeout_s=task.limits["timeout_s"], watch_memory=not task.alone, env=env,
                fork_servers=self.fork_servers, children=self.children, loads=list_imports(task.stage, task.params),
            )  # fmt: skip
            self.run.seal(task)
        if damaged := self._damaged_input(task):
            (folder / "result.json").unlink(missing_ok=True)  # so that a resumed run does not take it for a result
            return Outcome(StageStatus.FAILED, damaged)
        outcome = self._outcome(result, task, out)
        if outcome.done:
            self.store.record_history(task, result)
        return outcome

    def _outcome(self, result: TaskResult, task: Task, out: Path) -> Outcome:
        status = StageStatus(result.status)
        fetched = result.facts.get("folder") if status in DONE else None
        stderr = self.run.task_folder(task) / STDERR
        return Outcome(status, result.reason, result, Path(fetched) if fetched else out, stderr)


def decide_further_timing(first: Outcome) -> Outcome | None:
    """Return the outcome of further timings of latency.repeats=auto after the first one, or None if they must run."""
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

"""What a sweep does on its own machine for tasks of a fleet: what is known is not asked again, what a task needs lies in the
shared store before it is asked for, and what comes back lies where a task done here would leave it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ane_sweep.bridge import conversion
from ane_sweep.bridge.outcome import Outcome
from ane_sweep.bridge.protocol import STDERR
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import Task
from ane_sweep.bridge.trouble import explained
from ane_sweep.runner import errand, walk
from ane_sweep.runner.shares import Shares
from ane_sweep.runner.tries import Lost
from ane_sweep.store.cache import Store
from ane_sweep.store.runs import Run

_GATHER_S = 60.0


def measured_by(outcome: Outcome) -> str | None:
    """The worker that a result says it was taken on."""
    said: dict[str, Any] = outcome.result.facts.get("measured_on", {})
    return said.get("host", {}).get("worker")


@dataclass
class Home:
    """This machine's cache, its run's folder, and the store that all machines share."""

    worker: walk.Worker
    run: Run
    store: Store
    settings: dict[str, Any]
    _said: set[str] = field(default_factory=set)
    _pushed: set[str] = field(default_factory=set)
    _damaged: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.shares = Shares.of(self.run)
        self.shelf = errand.shelf(self.settings["store"], self.worker.stop)

    def say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self.worker.display.say(line)

    def children_end(self) -> None:
        self.worker.children.kill_all()

    def without_fleet(self, task: Task, dead: str | None) -> Outcome | None:
        """What is known of a task, here or in the shared store, or what this machine alone can make; None: the fleet is to
        be asked, and finds its inputs in the shared store."""
        known = self.worker.without_running(task)
        if known is None and self._stored(task) and self._pulled(task):
            known = self.worker.without_running(task)
        if known is not None or dead is not None:
            return known
        if task.folders and task.place:  # done here it would be another machine's figure; the plan refuses such cells
            return Outcome(StageStatus.FAILED, f"{task.stage} needs files that only the machine that sweeps has")
        if STAGES[task.stage].network or task.folders:
            return self._made_here(task)
        for key in task.inputs.values():
            if (why := self._share(self.worker.plan.tasks[key])) is not None:
                return Outcome(StageStatus.FAILED, why)
        return None

    def asked(self, task: Task, sweep: str) -> str:
        tasks = self.worker.plan.tasks
        inputs = {role: (tasks[key].stage, key) for role, key in task.inputs.items() if self._stored(tasks[key])}
        plain = replace(task, inputs={role: key for role, (_, key) in inputs.items()}, after=(), more_of="")
        again = task.key in self._damaged or self.shelf.damage(task.stage, task.key) is not None
        return errand.asked(plain, sweep, inputs, self.settings, again)

    def arrived(self, task: Task, future: Any, wanted: Callable[[], bool]) -> Outcome | Lost:
        """The outcome that a future brings; or why there is none. Nothing of what is not `wanted` is kept."""
        try:
            answer = conversion.decode(future.result(timeout=_GATHER_S), errand.Answer)
        except Exception as error:  # the worker went down with it, and Dask says so in many ways
            return Lost(f"its answer was lost with its worker ({type(error).__name__})")
        if answer.stopped:
            return Lost(f"it was stopped on {answer.machine}")
        if answer.unable is not None:
            return Lost(f"on {answer.machine}: {answer.unable}", on=answer.machine)
        for key in answer.missing:
            if (why := self._share(self.worker.plan.tasks[key], again=True)) is not None:
                return Outcome(StageStatus.FAILED, why)
        if answer.missing:
            return Lost(
                f"what it is made from was not whole in the shared store, as {answer.machine} found; it was put there again"
            )
        if not wanted():
            return Lost("nobody waits for it any more")
        try:
            outcome = self._outcome(task, answer)
        except OSError as error:  # this disk: it costs this task, as it would without a fleet
            return Outcome(StageStatus.FAILED, f"on the machine that sweeps: {explained(error)}")
        if isinstance(outcome, Outcome) and outcome.done:
            made = outcome.status is StageStatus.OK
            self.shares.did(answer.machine, answer.host, (outcome.result.seconds or 0.0) if made else 0.0)
        return outcome

    def forget(self, task: Task) -> None:
        """Of a timing that is to be taken anew."""
        (self.run.task_folder(task) / "result.json").unlink(missing_ok=True)

    def _outcome(self, task: Task, answer: errand.Answer) -> Outcome | Lost:
        folder = self.run.make_task_folder(task)
        (folder / "out").mkdir()
        for name, content in errand.files_of(answer).items():
            path = folder / name
            if not path.resolve().is_relative_to(folder.resolve()):
                return Lost(f"{answer.machine} answered with a file outside of the task's folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        status, result = StageStatus(answer.status), errand.result_of(answer)
        outcome = Outcome(status, answer.reason, folder=folder / "out", stderr=folder / STDERR)
        if result is None:
            return outcome
        outcome.result = result
        if task.place:
            told = {"host": {**answer.host, "worker": answer.machine}, "toolchain": answer.toolchain}
            result.facts["measured_on"] = told
        if outcome.done and self._stored(task):
            if (place := self.shelf.pull(self.store, task.stage, task.key)) is None:
                if (why := self.shelf.tally.unpulled.get((task.stage, task.key))) is not None:
                    return Outcome(StageStatus.FAILED, f"made on {answer.machine}, it could not be brought here: {why}")
                self._damaged.add(task.key)
                return Lost(f"what {answer.machine} made did not arrive whole from the shared store")
            self._pushed.add(task.key)
            outcome.folder = place
            if status is StageStatus.CACHED:
                outcome.stderr = place / STDERR
        if not outcome.done or not self._stored(task):  # what a resumed run goes on with
            result.write(folder / "result.json")
            self.run.seal(task)
        if status is StageStatus.OK:
            seconds = result.seconds or 0.0
            self.store.record_history(stage=task.stage, work=task.work, seconds=seconds, peak_bytes=result.peak_bytes)
        return outcome

    def _made_here(self, task: Task) -> Outcome:
        """What needs the network's caches or files of this machine. The display is told by who asked."""
        quiet = replace(self.worker, display=_Silent(self.worker.display.begin, self.worker.display.say))
        for key in task.inputs.values():
            self._pulled(self.worker.plan.tasks[key])
        return quiet.perform(task)

    def _stored(self, task: Task) -> bool:
        return task.stage not in walk.UNSTORED

    def _pulled(self, task: Task) -> Path | None:
        if not self._stored(task) or self.store.lookup(task.stage, task.key) is not None:
            return None
        return self.shelf.pull(self.store, task.stage, task.key) if self.shelf.has(task.stage, task.key) else None

    def _share(self, task: Task, again: bool = False) -> str | None:
        """Have an artifact of this machine's cache in the shared store; why it cannot be."""
        if not self._stored(task):
            return None
        with self._lock:
            if again or task.key not in self._pushed:
                self.shelf.push(self.store, task.stage, task.key, again)
                if (why := self.shelf.tally.unpushed.get((task.stage, task.key))) is not None:
                    return f"{task.stage} cannot be put into store={self.shelf.url} from the machine that sweeps: {why}"
                self._pushed.add(task.key)
        return None


@dataclass
class _Silent:
    """A display that is told of no end."""

    begin: Callable[[Task], None]
    say: Callable[[str], None]

    def end(self, task: Task, outcome: Outcome) -> None: ...
    def freeze(self) -> None: ...
    def at(self, task: Task, machine: str) -> None: ...

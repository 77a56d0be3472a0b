"""The part of a fleet's sweep that runs on the sweep's own machine.

It looks up outcomes that exist already, copies a task's inputs to the shared store before the task is submitted, and
stores results as if the task had run here.
"""

import base64
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from ane_sweep.bridge import conversion, disk, kept
from ane_sweep.bridge.plan import Outcome
from ane_sweep.bridge.protocol import STDERR
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import Task, TaskResult
from ane_sweep.fleet.link import Future
from ane_sweep.native_errors import explain
from ane_sweep.runner import remote_task
from ane_sweep.runner.ready_queue import LostAttempt
from ane_sweep.runner.task_runner import UNSTORED, Display, QuietDisplay, TaskRunner
from ane_sweep.store.runs import Run

_GATHER_S = 60.0


class MachineShare(msgspec.Struct):
    """A machine's share of a run, as in run.json. `seconds` are those of task processes; `moved` counts programs."""

    chip: str | None = None
    os: str = ""
    tasks: int = 0
    seconds: float = 0.0
    lost: int = 0
    moved: int = 0


class MachineTally:
    """Each machine's share of a run, by worker. A continued run adds to the shares in its run.json."""

    def __init__(self, run: Run) -> None:
        info = disk.read_json(run.folder / "run.json")
        earlier = info.get("machines") if isinstance(info, dict) else None
        self._shares = defaultdict(MachineShare, kept.as_kind(earlier, dict[str, MachineShare]) or {})
        self._lock = threading.Lock()

    def as_plain(self) -> dict[str, dict[str, object]]:
        plain: dict[str, dict[str, object]] = msgspec.to_builtins(dict(self._shares))
        return plain

    def add(self, name: str | None, *, lost: int = 0, moved: int = 0) -> None:
        """Count a task that a machine began and did not end, or a program that another one times; None: no machine began it."""
        if name is not None:
            with self._lock:
                self._shares[name].lost += lost
                self._shares[name].moved += moved

    def add_task(self, name: str, host: Mapping[str, object], seconds: float) -> None:
        """Count a task that a machine has done."""
        with self._lock:
            share = self._shares[name]
            share.tasks += 1
            share.seconds = round(share.seconds + seconds, 3)
            chip = host.get("declared_chip") or host.get("chip")
            share.chip = None if chip is None else str(chip)
            share.os = " ".join(str(host[key]) for key in ("os_version", "os_build") if host.get(key))


@dataclass
class ResultCollector:
    """The collector of results: it connects this machine's cache, the run's folder, and the shared store."""

    runner: TaskRunner
    settings: RunSettings
    _said: set[str] = field(default_factory=set)
    _pushed: set[str] = field(default_factory=set)
    _damaged: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.run, self.store = self.runner.run, self.runner.store
        self.tally = MachineTally(self.run)
        self.shared = remote_task.open_fleet_store(str(self.settings.store), self.runner.stop)

    def say_once(self, line: str) -> None:
        """Show a line, unless it was shown before."""
        if line not in self._said:
            self._said.add(line)
            self.runner.display.say(line)

    def resolve_without_fleet(self, task: Task, dead: str | None) -> Outcome | None:
        """Return the outcome of a task that needs no worker, or None after copying its inputs to the shared store.

        The outcome may be in this cache or in the shared store; a task that needs the network or local files runs here.
        `dead`: why there is no scheduler; then only stored outcomes count.
        """
        outcome = self.runner.resolve_without_running(task)
        if outcome is None and _is_stored(task) and self._pull(task):
            outcome = self.runner.resolve_without_running(task)
        if outcome is not None or dead is not None:
            return outcome
        if task.folders and task.place:  # run here, it would give another machine's figure; the plan refuses such cells
            return Outcome(StageStatus.FAILED, f"{task.stage} needs files that only the machine that sweeps has")
        if STAGES[task.stage].network or task.folders:
            for key in task.inputs.values():
                self._pull(self.runner.plan.tasks[key])
            return replace(self.runner, display=_StartOnly(self.runner.display)).perform(task)
        for key in task.inputs.values():
            if (why := self._share(self.runner.plan.tasks[key])) is not None:
                return Outcome(StageStatus.FAILED, why)
        return None

    def encode(self, task: Task, sweep: str) -> str:
        """Return a task as text for a worker."""
        stored = {role: self.runner.plan.tasks[key] for role, key in task.inputs.items()}
        inputs = {role: (made.stage, made.key) for role, made in stored.items() if _is_stored(made)}
        alone = replace(task, inputs={role: key for role, (_, key) in inputs.items()}, after=(), more_of="")
        again = task.key in self._damaged or self.shared.damage(task.stage, task.key) is not None
        return remote_task.encode_task(alone, sweep, inputs, self.settings, again)

    def collect(self, task: Task, future: Future, is_current: Callable[[], bool]) -> Outcome | LostAttempt:
        """Return the outcome in a future, or why it has none. A result of an outdated attempt is dropped."""
        try:
            result = conversion.decode(future.result(timeout=_GATHER_S), remote_task.RemoteResult)
        except Exception as error:  # the worker was lost meanwhile, for which Dask has many types of errors
            return LostAttempt(f"its answer was lost with its worker ({type(error).__name__})")
        if result.stopped:
            return LostAttempt(f"it was stopped on {result.machine}")
        if result.unable is not None:
            return LostAttempt(f"on {result.machine}: {result.unable}", on=result.machine)
        for key in result.missing:
            if (why := self._share(self.runner.plan.tasks[key], again=True)) is not None:
                return Outcome(StageStatus.FAILED, why)
        if result.missing:
            return LostAttempt(
                f"{result.machine} found its inputs damaged in the shared store; they were put there again"
            )
        if not is_current():
            return LostAttempt("the attempt was given up")
        try:
            outcome = self._place(task, result)
        except OSError as error:  # this machine's disk: it costs the task, as it would without a fleet
            return Outcome(StageStatus.FAILED, f"on the machine that sweeps: {explain(error)}")
        if isinstance(outcome, Outcome) and outcome.done:
            is_new = outcome.status is StageStatus.OK
            self.tally.add_task(result.machine, result.host, (outcome.result.seconds or 0.0) if is_new else 0.0)
        return outcome

    def forget(self, task: Task) -> None:
        """Delete the result of a timing that will be repeated."""
        (self.run.task_folder(task) / "result.json").unlink(missing_ok=True)

    def _place(self, task: Task, remote: remote_task.RemoteResult) -> Outcome | LostAttempt:
        """Store a result as if the task had run here."""
        folder = self.run.make_task_folder(task)
        (folder / "out").mkdir()
        for name, content in remote.files.items():
            path = folder / name
            if not path.resolve().is_relative_to(folder.resolve()):
                return LostAttempt(f"{remote.machine} answered with a file outside of the task's folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(zlib.decompress(base64.b64decode(content)))
        status = StageStatus(remote.status)
        outcome = Outcome(status, remote.reason, folder=folder / "out", stderr=folder / STDERR)
        if remote.result is None:  # no process ran
            return outcome
        outcome.result = result = TaskResult.from_plain(remote.result)
        if task.place:
            host = {**remote.host, "worker": remote.machine}
            result.facts["measured_on"] = {"host": host, "toolchain": remote.toolchain}
        if outcome.done and _is_stored(task):
            if (artifact := self.shared.pull(self.store, task.stage, task.key)) is None:
                if (why := self.shared.tally.unpulled.get((task.stage, task.key))) is not None:
                    return Outcome(StageStatus.FAILED, f"made on {remote.machine}, it could not be brought here: {why}")
                self._damaged.add(task.key)
                return LostAttempt(f"the artifact that {remote.machine} made arrived damaged from the shared store")
            self._pushed.add(task.key)
            outcome.folder = artifact
            if status is StageStatus.CACHED:
                outcome.stderr = artifact / STDERR
        if not outcome.done or not _is_stored(task):  # a resumed run reads it
            result.write(folder / "result.json")
            self.run.seal(task)
        if status is StageStatus.OK:
            self.store.record_history(task, result)
        return outcome

    def _pull(self, task: Task) -> Path | None:
        if not _is_stored(task) or self.store.lookup(task.stage, task.key) is not None:
            return None
        return self.shared.pull(self.store, task.stage, task.key) if self.shared.has(task.stage, task.key) else None

    def _share(self, task: Task, again: bool = False) -> str | None:
        """Copy an artifact of this cache to the shared store. Return why that failed, or None."""
        if not _is_stored(task):
            return None
        with self._lock:
            if again or task.key not in self._pushed:
                self.shared.push(self.store, task.stage, task.key, again)
                if (why := self.shared.tally.unpushed.get((task.stage, task.key))) is not None:
                    return (
                        f"{task.stage} cannot be put into store={self.shared.url} from the machine that sweeps: {why}"
                    )
                self._pushed.add(task.key)
        return None


def _is_stored(task: Task) -> bool:
    return task.stage not in UNSTORED


class _StartOnly(QuietDisplay):
    """A display that shows only that a task begins, and messages; the executor shows its end."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def begin(self, task: Task) -> None:
        self._display.begin(task)

    def say(self, line: str) -> None:
        self._display.say(line)

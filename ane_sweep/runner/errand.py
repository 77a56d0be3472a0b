"""A task of a sweep elsewhere, done on this machine: inputs are pulled from the shared store, the task runs in a child as
ever, what it makes is pushed. A Dask worker calls `perform` by its name, which only starts that child and waits: what kills
the child comes back as its result, and costs nothing else.

Text in, text out: JSON means the same to every Python.
"""

import base64
import os
import threading
import zlib
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ane_sweep.bridge import conversion, trouble
from ane_sweep.bridge.outcome import Outcome
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.protocol import STDERR, Interrupted
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import Task, TaskResult
from ane_sweep.errors import StoreError
from ane_sweep.fleet import members
from ane_sweep.folders import outputs_folder
from ane_sweep.machine import host
from ane_sweep.runner import walk
from ane_sweep.runner.children import Children
from ane_sweep.runner.gate import Gate
from ane_sweep.runner.warm import Parents
from ane_sweep.store import shared
from ane_sweep.store.cache import Store, open_store
from ane_sweep.store.runs import Run

STORE_VARIABLE = "ANE_SWEEP_WORKER_STORE"  # where this machine finds the shared store, if not where the sweep does
MOST_BYTES = 32 << 20  # of the files of one task that travel with its answer; artifacts never do


class Errand(msgspec.Struct):
    """What is asked. `inputs`: role -> (stage, key) of an artifact in the shared store."""

    sweep: str
    task: dict[str, Any]
    inputs: dict[str, tuple[str, str]]
    store: str
    gate: dict[str, Any]
    lanes: int
    tools: dict[str, str | None]
    again: bool = False  # what the shared store has of it was found damaged


class Answer(msgspec.Struct):
    """What came of it. `missing`: inputs that the shared store does not hold whole, then nothing was run; `unable`: what is
    wrong with this machine, where another one may do it; `files`: those of a task whose result is not stored, and what it
    printed."""

    machine: str
    host: dict[str, Any]
    toolchain: dict[str, str | None]
    status: str = "failed"
    reason: str | None = None
    result: dict[str, Any] | None = None
    missing: list[str] = []
    unable: str | None = None
    files: dict[str, str] = {}
    stopped: bool = False


class Quiet:
    """Nobody looks on here."""

    def begin(self, task: Task) -> None: ...
    def end(self, task: Task, outcome: Outcome) -> None: ...
    def freeze(self) -> None: ...
    def say(self, line: str) -> None: ...
    def at(self, task: Task, machine: str) -> None: ...


_running: dict[str, list[tuple[Children, threading.Event]]] = {}
_lock = threading.Lock()


@cache
def _store() -> Store:
    store = open_store(outputs_folder(None))
    store.sweep_tmp()
    return store


def shelf(url: str, stop: threading.Event | None = None) -> shared.Shared:
    """Return the shared store as a fleet uses it: a figure that ran a program on one machine goes home as well."""
    return shared.open_shared(url, stages=set(STAGES) - walk.UNSTORED, stop=stop)


_shelf = cache(shelf)


@cache
def _parents() -> Parents:
    """Of preparations: they serve every sweep, as long as this process lives."""
    return Parents()


def perform(text: str) -> str:
    """An Errand as JSON; the Answer as JSON."""
    errand = conversion.decode(text, Errand)
    answer = Answer(os.environ.get(members.NAME_VARIABLE, ""), members.fingerprint(), host.toolchain())
    if differ := [name for name in members.SAME if errand.tools.get(name) != members.tools().get(name)]:
        answer.reason = (
            f"worker {answer.machine} has another {', '.join(differ)} than the sweep: install the same there"
        )
    else:
        try:
            _done(errand, answer)
        except Interrupted:
            answer.stopped = True
        except OSError as error:
            answer.unable = trouble.explained(error)
        except StoreError as error:
            answer.unable = str(error)
    return msgspec.json.encode(answer).decode()


def stop(sweep: str) -> None:
    """End what runs of a sweep here. Called by its name."""
    with _lock:
        for children, event in _running.get(sweep, []):
            event.set()
            children.kill_all()


def _begin(errand: Errand, machine: str) -> None:
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:  # called by a test, without one
        return
    name = worker.get_current_task()  # of this try: one that was given up says nothing about the next
    worker.log_event(topic(errand.sweep), {"key": errand.task["key"], "name": name, "machine": machine})


def topic(sweep: str) -> str:
    return f"ane-sweep-{sweep}"


def _done(errand: Errand, answer: Answer) -> None:
    _begin(errand, answer.machine)
    store, shared_store = _store(), _shelf(os.environ.get(STORE_VARIABLE) or errand.store)
    task = conversion.convert(errand.task, Task, dec_hook=lambda kind, value: kind(value))
    outcomes = {}
    for stage, key in errand.inputs.values():
        folder = store.intact(stage, key) or shared_store.pull(store, stage, key)
        if folder is None and (why := shared_store.tally.unpulled.get((stage, key))) is not None:
            answer.unable = why
            return
        if folder is None:
            answer.missing.append(key)
        outcomes[key] = Outcome(StageStatus.CACHED, folder=folder)
    if answer.missing:
        return
    folder = store.scratch("errand")
    try:
        outcome = _outcome(errand, task, outcomes, folder, store)
        _told(task, outcome, folder, answer)
        if outcome.status == StageStatus.FAILED and trouble.is_no_space_reason(outcome.reason):
            answer.unable = outcome.reason
        if outcome.done and task.stage not in walk.UNSTORED:
            shared_store.push(store, task.stage, task.key, again=errand.again)
            if (why := shared_store.tally.unpushed.get((task.stage, task.key))) is not None:
                answer.unable = f"it cannot write to the shared store: {why}"
    finally:
        store.discard(folder)


def _outcome(errand: Errand, task: Task, outcomes: dict[str, Outcome], folder: Path, store: Store) -> Outcome:
    plan = Plan([], [], tasks={task.key: task, **{key: _named(stage, key) for stage, key in errand.inputs.values()}})
    children, event = Children(), threading.Event()
    with _lock:
        _running.setdefault(errand.sweep, []).append((children, event))
    parents = Parents(cold=True) if task.alone else _parents()  # one process of one timing: a parent would save nothing
    worker = walk.Worker(
        plan, Run(folder, {}), store, Quiet(), members.memory_bytes(),
        max(1, (os.cpu_count() or 1) // errand.lanes), Gate(**errand.gate), event, parents, outcomes, children=children,
    )  # fmt: skip
    try:
        return worker.perform(task)
    finally:
        with _lock:
            _running[errand.sweep].remove((children, event))


def _named(stage: str, key: str) -> Task:
    """A task of which only the artifact is here."""
    return Task(stage, key, {}, {}, {}, {}, None, stage, 0, 0, 0, None)


def _told(task: Task, outcome: Outcome, folder: Path, answer: Answer) -> None:
    """The outcome, with what of its files is small and belongs to the sweep."""
    answer.status, answer.reason = outcome.status.value, outcome.reason
    if outcome.result.stage:
        answer.result = outcome.result.to_plain()
    run, left = Run(folder, {}).task_folder(task), MOST_BYTES
    kept = [run / "stdout.txt", run / STDERR]
    if task.stage in walk.UNSTORED:
        kept += sorted(path for path in (run / "out").rglob("*") if path.is_file() and not path.is_symlink())
    for path in kept:
        if not path.is_file() or path.stat().st_size == 0:
            continue
        if path.name == STDERR:
            content = path.read_bytes()[: walk.STDERR_BYTES]
        elif path.stat().st_size > left:
            if answer.result is not None:
                answer.result["doubts"].append(
                    f"{path.name} of {task.stage} stayed on {answer.machine}: it is too large"
                )
            continue
        else:
            content = path.read_bytes()
        left -= len(content)
        answer.files[path.relative_to(run).as_posix()] = base64.b64encode(zlib.compress(content, 1)).decode()


def files_of(answer: Answer) -> dict[str, bytes]:
    """Name within the task's folder -> content."""
    return {name: zlib.decompress(base64.b64decode(text)) for name, text in answer.files.items()}


def asked(
    task: Task, sweep: str, inputs: dict[str, tuple[str, str]], settings: dict[str, Any], again: bool = False
) -> str:
    """The Errand of a task, as JSON."""
    plain = {**asdict(task), "folders": {}, "varies": []}
    errand = Errand(
        sweep, plain, inputs, settings["store"], settings["gate"], settings["lanes"], members.tools(), again
    )
    return msgspec.json.encode(errand).decode()


def result_of(answer: Answer) -> TaskResult | None:
    return None if answer.result is None else TaskResult.from_plain(answer.result)

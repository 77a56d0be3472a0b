"""One task of another machine's sweep: pull its inputs from the shared store, run it in a child process, push its
result.

A Dask worker calls `run_remote_task` by its name. The function only starts the child and waits, so that a crash of the
child comes back as its result. Arguments and results are JSON texts, which every version of Python reads alike.
"""

import base64
import os
import threading
import zlib
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec

from ane_sweep import native_errors
from ane_sweep.bridge import conversion
from ane_sweep.bridge.plan import Outcome, Plan
from ane_sweep.bridge.protocol import STDERR, Interrupted
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import Task
from ane_sweep.errors import StoreError
from ane_sweep.fleet import link, members
from ane_sweep.folders import outputs_folder
from ane_sweep.machine import host
from ane_sweep.runner.children import Children
from ane_sweep.runner.fork_server import ForkServers
from ane_sweep.runner.gate import TimingGate
from ane_sweep.runner.task_runner import STDERR_BYTES, UNSTORED, QuietDisplay, TaskRunner
from ane_sweep.store import shared
from ane_sweep.store.cache import Store, open_store
from ane_sweep.store.runs import Run

STORE_VARIABLE = "ANE_SWEEP_WORKER_STORE"  # this machine's address of the shared store, if it differs from the sweep's
MAX_BYTES = 32 << 20  # of one task's files that travel with its result; artifacts never do


class RemoteTask(msgspec.Struct):
    """A task for another machine.

    inputs  role -> (stage, key) of an artifact in the shared store
    again   the shared store's artifact of this task is damaged and must be replaced
    """

    sweep: str
    task: Task
    inputs: dict[str, tuple[str, str]]
    store: str
    gate: dict[str, float]
    lanes: int
    tools: dict[str, str | None]
    again: bool = False


class RemoteResult(msgspec.Struct):
    """The result of a remote task.

    missing  inputs that are missing or damaged in the shared store, so that the task did not run
    unable   why this machine cannot do the task, although another one may
    files    name -> content (zlib, base64): the printed output, and the files of a task whose result is not cached
    stopped  the sweep stopped the task
    """

    machine: str
    host: dict[str, object]
    toolchain: dict[str, str | None]
    status: str = "failed"
    reason: str | None = None
    result: dict[str, object] | None = None
    missing: list[str] = []
    unable: str | None = None
    files: dict[str, str] = {}
    stopped: bool = False


_running: dict[str, list[tuple[Children, threading.Event]]] = defaultdict(list)  # by sweep
_lock = threading.Lock()


@cache
def _open_cache() -> Store:
    store = open_store(outputs_folder(None))
    store.sweep_tmp()
    return store


def open_fleet_store(url: str, stop: threading.Event | None = None) -> shared.Shared:
    """Return the shared store for all stages whose results are stored in a fleet, including those that run a program."""
    return shared.Shared(url, stages=set(STAGES) - UNSTORED, stop=stop)


_open_shared = cache(open_fleet_store)
_fork_servers = cache(ForkServers)  # for the preparations of all sweeps, as long as this process lives


def run_remote_task(text: str) -> str:
    """Run a RemoteTask, given as JSON. Return a RemoteResult as JSON."""
    remote = conversion.decode(text, RemoteTask)
    result = RemoteResult(os.environ.get(members.NAME_VARIABLE, ""), members.fingerprint(), host.toolchain())
    if differ := ", ".join(name for name in members.SAME if remote.tools.get(name) != members.tools().get(name)):
        result.reason = f"worker {result.machine} has another {differ} than the sweep: install the same there"
    else:
        try:
            _run(remote, result)
        except Interrupted:
            result.stopped = True
        except OSError as error:
            result.unable = native_errors.explain(error)
        except StoreError as error:
            result.unable = str(error)
    return msgspec.json.encode(result).decode()


def stop_sweep(sweep: str) -> None:
    """End all tasks of a sweep on this machine. Dask calls this function by its name."""
    with _lock:
        for children, event in _running[sweep]:
            event.set()
            children.kill_all()


def event_topic(sweep: str) -> str:
    """Return the Dask topic under which a sweep's tasks report that they begin."""
    return f"ane-sweep-{sweep}"


def _run(remote: RemoteTask, result: RemoteResult) -> None:
    link.report_start(event_topic(remote.sweep), remote.task.key, result.machine)
    store, shared_store = _open_cache(), _open_shared(os.environ.get(STORE_VARIABLE) or remote.store)
    task, outcomes = remote.task, {}
    for stage, key in remote.inputs.values():
        folder = store.intact(stage, key) or shared_store.pull(store, stage, key)
        if folder is None:
            if (why := shared_store.tally.unpulled.get((stage, key))) is not None:
                result.unable = why
                return
            result.missing.append(key)
        outcomes[key] = Outcome(StageStatus.CACHED, folder=folder)
    if result.missing:
        return
    # Tasks that stand for their artifacts.
    inputs = {key: Task(stage, key, {}, {}, {}, {}, stage, 0, 0, 0, None) for stage, key in remote.inputs.values()}
    folder, children, event = store.scratch("errand"), Children(), threading.Event()
    try:
        runner = TaskRunner(
            Plan([], [], tasks={task.key: task, **inputs}), Run(folder, {}), store, QuietDisplay(),
            budget=members.memory_bytes(),
            threads=max(1, (os.cpu_count() or 1) // remote.lanes),
            gate=TimingGate(remote.gate["wait_s"], remote.gate["busy"]),
            stop=event, outcomes=outcomes, children=children,
            # A timing is one process of its round here: a fork server would save nothing.
            fork_servers=ForkServers(cold=True) if task.alone else _fork_servers(),
        )  # fmt: skip
        with _lock:
            _running[remote.sweep].append((children, event))
        try:
            outcome = runner.perform(task)
        finally:
            with _lock:
                _running[remote.sweep].remove((children, event))
        _fill_in(result, task, outcome, folder)
        if outcome.status == StageStatus.FAILED and native_errors.is_no_space_reason(outcome.reason):
            result.unable = outcome.reason
        if outcome.done and task.stage not in UNSTORED:
            shared_store.push(store, task.stage, task.key, again=remote.again)
            if (why := shared_store.tally.unpushed.get((task.stage, task.key))) is not None:
                result.unable = f"it cannot write to the shared store: {why}"
    finally:
        store.discard(folder)


def _fill_in(result: RemoteResult, task: Task, outcome: Outcome, folder: Path) -> None:
    """Add an outcome to a result, with the small files that belong to the sweep."""
    run, room = Run(folder, {}).task_folder(task), MAX_BYTES
    paths = [run / "stdout.txt", run / STDERR]
    if task.stage in UNSTORED:
        paths += sorted(path for path in (run / "out").rglob("*") if path.is_file() and not path.is_symlink())
    for path in paths:
        if not path.is_file() or path.stat().st_size == 0:
            continue
        if path.name != STDERR and path.stat().st_size > room:
            outcome.result.doubts.append(f"{path.name} of {task.stage} stayed on {result.machine}: it is too large")
            continue
        content = path.read_bytes()[: STDERR_BYTES if path.name == STDERR else None]
        room -= len(content)
        result.files[path.relative_to(run).as_posix()] = base64.b64encode(zlib.compress(content, 1)).decode()
    result.status, result.reason = outcome.status.value, outcome.reason
    if outcome.result.stage:
        result.result = outcome.result.to_plain()


def encode_task(
    task: Task, sweep: str, inputs: dict[str, tuple[str, str]], settings: RunSettings, again: bool = False
) -> str:
    """Return a task as a RemoteTask in JSON."""
    remote = RemoteTask(
        sweep, replace(task, folders={}, varies=frozenset()), inputs, str(settings.store), vars(settings.gate),
        settings.lanes, members.tools(), again,
    )  # fmt: skip
    return msgspec.json.encode(remote).decode()

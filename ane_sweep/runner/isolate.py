"""One task in one fresh process: spawn, wait without stirring, reap, and a result.json in every case.

While a task is timed nothing of ours runs: the parent sits in one blocking wait (processes.py).

A timeout kills in two steps: SIGTERM to the worker, whose C-level handler writes every stack to stderr (that is all it
is for: a task has nothing to save, its output lies aside and is thrown away), then 0.2 s later SIGKILL to the whole
process group and to every descendant, which nothing can ignore.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ane_sweep.bridge import autopsy, disk, protocol, trouble
from ane_sweep.bridge.protocol import PARENT_VARIABLE, STDERR, WAITING_VARIABLES, Interrupted
from ane_sweep.bridge.task import TaskRequest, TaskResult
from ane_sweep.machine import processes, stand_in

_WATCH_S = 0.25  # how often a prepared task's memory is read; never while timing
_GRACE_S = 0.2
# How long an idle thread of libgomp turns in a loop before it sleeps. Its default (300,000) is best on an idle machine;
# on a busy one every turn is taken from the thread that is waited for (docs/rulings.md). The user's own word stands.
SPINCOUNT = "10000"
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


@dataclass(eq=False)
class Child:
    """A running worker. `ended_by` says why *we* ended it: timeout, memory or interrupt; None while nobody did."""

    process: subprocess.Popen
    ended_by: str | None = None
    peak_bytes: int = 0


class Children:
    """The workers of a sweep that are alive now, so that Ctrl-C in the main thread can end those of every lane.

    A plain flag, not a threading.Event: kill_all may run in a signal handler of the very thread that uses it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entrant: kill_all may be called by a signal handler in the midst of start
        self._live: set[Child] = set()
        self._stopping = False

    def start(self, command: list[str], **options: Any) -> Child:
        """Spawn and register in one step. Raises Interrupted after kill_all."""
        with self._lock:
            if self._stopping:
                raise Interrupted("the sweep is being stopped; this task was not started")
            child = Child(subprocess.Popen(command, start_new_session=True, **options))
            self._live.add(child)
            if self._stopping:  # the signal came while we were spawning
                self.end(child, "interrupt")
            return child

    def end(self, child: Child, why: str) -> None:
        """Kill a worker's whole tree, unless it was already given up for reaping (its pid may be another's by then)."""
        with self._lock:
            if child in self._live:
                child.ended_by = child.ended_by or why
                child.peak_bytes = max(child.peak_bytes, processes.high_water(child.process.pid))
                processes.kill_tree(child.process.pid)

    def give_up(self, child: Child) -> None:
        """Called right before reaping: from here on nobody signals this pid any more."""
        with self._lock:
            self._live.discard(child)

    def kill_all(self) -> None:
        """End every running worker and refuse new ones; each run_task then raises Interrupted in its own thread."""
        with self._lock:
            self._stopping = True
            for child in list(self._live):
                self.end(child, "interrupt")

    def reopen(self) -> None:
        """Allow new workers again after kill_all."""
        self._stopping = False


CHILDREN = Children()


def run_task(
    task: TaskRequest,
    folder: Path,
    *,
    timeout_s: float | None,
    watch_memory: bool,
    env: dict[str, str] | None = None,
    python: str = sys.executable,
    children: Children = CHILDREN,
    pass_fds: tuple[int, ...] = (),
) -> TaskResult:
    """Run one task in a fresh process and return its result, also when the process died.

    Leaves task.json, stdout.txt, stderr.txt and result.json in `folder`; `result` is filled in here, and paths are made
    absolute. `env` is laid over the inherited environment last; `pass_fds` stay open in the worker. Call it, wait
    included, in one thread: on Linux a worker dies with the thread that started it. `watch_memory` reads the tree's
    memory four times a second: for preparation, never while timing.

    Raises Interrupted after `children.kill_all()`, and KeyboardInterrupt through; both leave no result.json.
    """
    folder = folder.absolute()
    task = _absolute(task, folder)
    started = time.monotonic()
    try:
        _prepare(task, folder)
        ooms = processes.oom_kills()
        child = _spawn(task, folder, env, python, children, pass_fds)
    except OSError as error:
        disk.remove_tree(task.tmp)
        return _finish(_not_started(task, error), task.result, None, time.monotonic() - started, None)
    try:
        _await_end(child, children, timeout_s, task.limits.memory_bytes if watch_memory else None)
    except BaseException:
        children.end(child, "interrupt")
        raise
    finally:
        exit_code, peak, left = _reap(child, children)
        disk.remove_tree(task.tmp)
        if child.ended_by == "interrupt":
            task.result.unlink(missing_ok=True)
    if child.ended_by == "interrupt":
        raise Interrupted(f"the sweep is being stopped; {task.stage} was killed and left no result")
    result = _own_result(task)
    if result is None:
        result = _explained(task, child.ended_by, exit_code, folder, processes.oom_kills() > ooms, timeout_s)
    if left:
        result.doubts.append(f"{len(left)} process(es) of this task could not be killed: {left}")
    return _finish(result, task.result, exit_code, time.monotonic() - started, peak)


def _absolute(task: TaskRequest, folder: Path) -> TaskRequest:
    inputs = {role: path.absolute() for role, path in task.inputs.items()}
    return replace(task, inputs=inputs, out=task.out.absolute(), tmp=task.tmp.absolute(), result=folder / "result.json")


def _prepare(task: TaskRequest, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    task.result.unlink(missing_ok=True)
    task.tmp.mkdir(parents=True, exist_ok=True)
    task.write(folder / "task.json")


def _spawn(
    task: TaskRequest,
    folder: Path,
    env: dict[str, str] | None,
    python: str,
    children: Children,
    pass_fds: tuple[int, ...],
) -> Child:
    # Files, not pipes: nobody has to read them while something is timed, and a chatty stage cannot fill them up.
    # -P: a stray json.py in the working folder must not shadow the library's.
    command = [python, "-P", "-m", "ane_sweep.worker.child", str(folder / "task.json")]
    stdin = subprocess.DEVNULL if sys.platform == "linux" else subprocess.PIPE  # the pipe is how others die with us
    with open(folder / "stdout.txt", "wb") as stdout, open(folder / STDERR, "wb") as stderr:
        return children.start(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=task.tmp,
            env=child_environment(task.threads, task.tmp) | (env or {}),
            pass_fds=pass_fds,
        )


def child_environment(threads: int | None, tmp: Path) -> dict[str, str]:
    """The inherited environment with what every worker needs: reproducible, quiet, and able to import ane_sweep."""
    env = protocol.python_environment()
    env |= {
        PARENT_VARIABLE: str(os.getpid()),
        "TMPDIR": str(tmp),
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if sys.platform == "linux" and not env.keys() & set(WAITING_VARIABLES):
        env["GOMP_SPINCOUNT"] = SPINCOUNT
    if threads is not None:
        env |= {name: str(threads) for name in _THREAD_VARIABLES}
    if script := env.get(stand_in.VARIABLE):
        env[stand_in.VARIABLE] = os.path.abspath(script)  # cwd is another
    return env


def _await_end(child: Child, children: Children, timeout_s: float | None, watch_bytes: int | None) -> None:
    """Return once the worker has ended, whoever ended it. It is not reaped yet, so its pid is still its own."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with processes.ProcessExit(child.process.pid) as gone:
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            step = left if watch_bytes is None else min(_WATCH_S, _WATCH_S if left is None else left)
            if gone.wait(step):
                return
            if deadline is not None and time.monotonic() >= deadline:
                child.ended_by = child.ended_by or "timeout"
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.process.pid, signal.SIGTERM)
                if not gone.wait(_GRACE_S):
                    children.end(child, "timeout")
                    gone.wait(None)
                return
            if watch_bytes is not None:
                used = processes.tree_bytes(child.process.pid)
                child.peak_bytes = max(child.peak_bytes, used)
                if used > watch_bytes:
                    children.end(child, "memory")
                    gone.wait(None)
                    return


def _reap(child: Child, children: Children) -> tuple[int | None, int | None, list[int]]:
    """Kill what is left of the worker's group, reap the worker: (exit code, peak bytes, pids that would not die)."""
    pid = child.process.pid
    before = processes.high_water(os.getpid())
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # Helpers that a finished stage left running. The worker is not reaped yet, so the group's id is still ours.
        os.killpg(pid, signal.SIGKILL)
    children.give_up(child)
    try:
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:  # SIGCHLD is ignored in this process: the kernel reaped it for us
        child.process.returncode = 0
        return None, child.peak_bytes or None, processes.still_there(pid)
    child.process.returncode = code = os.waitstatus_to_exitcode(status)  # else Popen would look for it again
    if child.process.stdin is not None:
        child.process.stdin.close()
    peak = usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss * 1024
    if peak <= before:  # a vforked child starts with its parent's figure: no word about the child itself
        peak = 0
    return code, max(peak, child.peak_bytes) or None, processes.still_there(pid)


def _own_result(task: TaskRequest) -> TaskResult | None:
    """The worker's result if it is whole and of this very task."""
    result = TaskResult.read(task.result)
    return result if result is not None and (result.stage, result.key) == (task.stage, task.key) else None


def _explained(
    task: TaskRequest, ended_by: str | None, code: int | None, folder: Path, ran_out: bool, timeout_s: float | None
) -> TaskResult:
    """The result of a worker that left none."""
    tail = autopsy.read_tail(folder / STDERR)
    status, reason = autopsy.cause_of_death(task, ended_by, code, tail, ran_out, timeout_s)
    return TaskResult(task.stage, task.key, status, reason, stderr_tail=tail[-2048:])


def _not_started(task: TaskRequest, error: OSError) -> TaskResult:
    full = trouble.speaks_of_space(error)
    reason = trouble.no_space_reason(error.filename) if full else f"the worker could not be started: {error}"
    return TaskResult(task.stage, task.key, "failed", reason)


def _finish(result: TaskResult, path: Path, code: int | None, seconds: float, peak: int | None) -> TaskResult:
    """Add what only the parent knows and write the result down; a full disk costs the file, never the result."""
    result.seconds, result.exit = seconds, autopsy.exit_name(code)
    result.peak_bytes = max(result.peak_bytes or 0, peak or 0) or None
    try:
        result.write(path)
    except OSError as error:
        result.doubts.append(f"result.json could not be written: {error}")
    return result

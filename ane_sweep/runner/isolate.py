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
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ane_sweep.bridge import autopsy, disk, protocol, trouble
from ane_sweep.bridge.protocol import PARENT_VARIABLE, STDERR, WAITING_VARIABLES, Interrupted
from ane_sweep.bridge.task import TaskRequest, TaskResult
from ane_sweep.machine import processes, stand_in
from ane_sweep.runner.children import CHILDREN, Child, Children
from ane_sweep.runner.warm import Forked, Lost, Parent, Parents

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


def run_task(
    task: TaskRequest,
    folder: Path,
    *,
    timeout_s: float | None,
    watch_memory: bool,
    env: dict[str, str] | None = None,
    python: str = sys.executable,
    children: Children = CHILDREN,
    parents: Parents | None = None,
    loads: Sequence[str] = (),
    pass_fds: tuple[int, ...] = (),
) -> TaskResult:
    """Run one task in a fresh process and return its result, also when the process died.

    Leaves task.json, stdout.txt, stderr.txt and result.json in `folder`; `result` is filled in here, and paths are made
    absolute. `env` is laid over the inherited environment last. Call it, wait included, in one thread: on Linux a worker
    dies with the thread that started it. `watch_memory` reads the tree's memory four times a second: for preparation,
    never while timing. Of `parents` it is forked from one that has imported `loads`, if it can be (warm.py); without them
    `pass_fds` stay open in the worker.

    Raises Interrupted after `children.kill_all()`, and KeyboardInterrupt through; both leave no result.json.
    """
    folder = folder.absolute()
    task = _absolute(task, folder)
    environment = child_environment(task.threads, task.tmp) | (env or {})
    started = time.monotonic()
    limit = task.limits.memory_bytes
    parent = parents.of(loads, environment, python, limit) if parents else None
    watched = limit if watch_memory else None

    def once(parent: Parent | None) -> TaskResult | None:
        def spawn() -> Child:
            return _spawn(task, folder, environment, python, children, parent, pass_fds)

        return _once(task, folder, spawn, children, timeout_s, watched, started)

    result = once(parent)
    if result is None:  # that parent died, or could fork no more
        disk.remove_tree(task.out)
        result = once(None)
    assert result is not None
    return result


def _once(
    task: TaskRequest,
    folder: Path,
    spawn: Callable[[], Child],
    children: Children,
    timeout_s: float | None,
    watch_bytes: int | None,
    started: float,
) -> TaskResult | None:
    """None where the task's parent died and the task with it."""
    try:
        _prepare(task, folder)
        ooms = processes.oom_kills()
        child = spawn()
    except Lost:
        return None
    except OSError as error:
        disk.remove_tree(task.tmp)
        return _finish(_not_started(task, error), task.result, None, time.monotonic() - started, None)
    try:
        _await_end(child, children, timeout_s, watch_bytes)
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
    if result is None and child.ended_by is None and isinstance(child.process, Forked) and child.process.orphaned:
        return None
    if result is None:
        processes.end_all_with("TMPDIR", task.tmp)
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
    env: dict[str, str],
    python: str,
    children: Children,
    parent: Parent | None,
    pass_fds: tuple[int, ...],
) -> Child:
    # Files, not pipes: nobody has to read them while something is timed, and a chatty stage cannot fill them up.
    # -P: a stray json.py in the working folder must not shadow the library's.
    asked = folder / "task.json"
    command = [python, "-P", "-m", "ane_sweep.worker.child", str(asked)]
    stdin = subprocess.DEVNULL if sys.platform == "linux" else subprocess.PIPE  # the pipe is how others die with us
    with open(folder / "stdout.txt", "wb") as stdout, open(folder / STDERR, "wb") as stderr:

        def cold() -> subprocess.Popen:
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=task.tmp,
                env=env,
                pass_fds=pass_fds,
                start_new_session=True,
            )

        def warm() -> Forked:
            assert parent is not None
            return parent.fork(asked, task.tmp, stdout.fileno(), stderr.fileno())

        return children.start(warm if parent else cold)


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
    if isinstance(child.process, Forked):
        code, peak = child.process.reap()
        return code, max(peak, child.peak_bytes) or None, processes.still_there(pid)
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
    full = trouble.is_out_of_space(error)
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

"""One task in one fresh process: spawned, awaited without using the processor, and reaped; there is always a
result.json afterwards.

A timeout kills in two steps. SIGTERM makes the process write every stack to stderr (a C-level handler; a task has
nothing else to save). 0.2 s later SIGKILL ends its process group and every descendant.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ane_sweep import native_errors
from ane_sweep.bridge import autopsy, disk, protocol
from ane_sweep.bridge.protocol import PARENT_VARIABLE, STDERR, WAITING_VARIABLES, Interrupted
from ane_sweep.bridge.task import TaskRequest, TaskResult
from ane_sweep.machine import processes, stand_in
from ane_sweep.runner.children import CHILDREN, Child, Children
from ane_sweep.runner.fork_server import ForkedProcess, ForkServer, ForkServers, ServerLost

_WATCH_S = 0.25  # how often a prepared task's memory is read; never while timing
_GRACE_S = 0.2
# How often an idle thread of libgomp spins before it sleeps. Its default (300,000) is best on an idle machine; on a busy
# one each spin is taken from the thread that the others wait for (docs/rulings.md). The user's own setting wins.
SPINCOUNT = "10000"


def run_task(
    task: TaskRequest,
    folder: Path,
    *,
    timeout_s: float | None,
    watch_memory: bool,
    env: dict[str, str] | None = None,
    python: str = sys.executable,
    children: Children = CHILDREN,
    fork_servers: ForkServers | None = None,
    loads: Sequence[str] = (),
    pass_fds: tuple[int, ...] = (),
) -> TaskResult:
    """Run one task in a fresh process and return its result, even if the process died.

    It writes task.json, stdout.txt, stderr.txt and result.json to `folder`. On Linux a child dies with the thread that
    started it, so call this in a thread that lives as long. Raises Interrupted after `children.kill_all()`, and
    KeyboardInterrupt; then there is no result.json.

    env           variables that override the inherited environment
    watch_memory  check the process tree's memory four times a second: for preparation, never while timing
    fork_servers  fork the process from a server that has imported `loads`, if possible (fork_server.py)
    pass_fds      descriptors that stay open in the process; only without `fork_servers`
    """
    folder = folder.absolute()
    inputs = {role: path.absolute() for role, path in task.inputs.items()}
    task = replace(task, inputs=inputs, out=task.out.absolute(), tmp=task.tmp.absolute(), result=folder / "result.json")
    environment = child_environment(task.tmp) | (env or {})
    limit = task.limits.memory_bytes
    # before the run, as the imports of a new server are no task's time
    server = fork_servers.get(loads, environment, python, limit) if fork_servers else None
    run = _Run(task, folder, environment, python, children, pass_fds, timeout_s, limit if watch_memory else None)
    result = run.attempt(server)
    if result is None:  # the fork server died, or could fork no more
        disk.remove_tree(task.out)
        result = run.attempt(None)
    assert result is not None
    return result


@dataclass(frozen=True)
class _Run:
    """A task that runs in fresh processes; its paths are absolute. `watch_bytes`: the limit on its memory, if that is watched."""

    task: TaskRequest
    folder: Path
    env: dict[str, str]
    python: str
    children: Children
    pass_fds: tuple[int, ...]
    timeout_s: float | None
    watch_bytes: int | None
    started: float = field(default_factory=time.monotonic)

    def attempt(self, server: ForkServer | None) -> TaskResult | None:
        """Run the process and return its result, or None if the task died because its fork server did."""
        task = self.task
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            task.result.unlink(missing_ok=True)
            task.tmp.mkdir(parents=True, exist_ok=True)
            task.write(self.folder / "task.json")
            ooms = processes.oom_kills()
            child = self._spawn(server)
        except ServerLost:
            return None
        except OSError as error:
            disk.remove_tree(task.tmp)
            full = native_errors.is_out_of_space(error)
            reason = (
                native_errors.no_space_reason(error.filename) if full else f"the worker could not be started: {error}"
            )
            return self._finish(TaskResult(task.stage, task.key, "failed", reason), None, None)
        try:
            self._await_end(child)
        except BaseException:
            self.children.end(child, "interrupt")
            raise
        finally:
            exit_code, peak, survivors = self._reap(child)
            disk.remove_tree(task.tmp)
            if child.ended_by == "interrupt":
                task.result.unlink(missing_ok=True)
        if child.ended_by == "interrupt":
            raise Interrupted(f"the sweep is being stopped; {task.stage} was killed and left no result")
        result = TaskResult.read(task.result)
        if result is None or (result.stage, result.key) != (task.stage, task.key):  # none, damaged, or of another task
            if child.ended_by is None and isinstance(child.process, ForkedProcess) and child.process.server.gone:
                return None
            processes.end_all_with("TMPDIR", task.tmp)
            tail, ran_out = autopsy.read_tail(self.folder / STDERR), processes.oom_kills() > ooms
            status, reason = autopsy.cause_of_death(task, child.ended_by, exit_code, tail, ran_out, self.timeout_s)
            result = TaskResult(task.stage, task.key, status, reason, stderr_tail=tail[-2048:])
        if survivors:
            result.doubts.append(f"{len(survivors)} process(es) of this task could not be killed: {survivors}")
        return self._finish(result, exit_code, peak)

    def _spawn(self, server: ForkServer | None) -> Child:
        # Files, not pipes: no process has to read them while something is timed, and a chatty stage cannot fill them up.
        # -P: a stray json.py in the working folder must not shadow the library's.
        task_file, tmp = self.folder / "task.json", self.task.tmp
        command = [self.python, "-P", "-m", "ane_sweep.worker.child", str(task_file)]
        # Off Linux a child ends when this pipe closes.
        stdin = subprocess.DEVNULL if sys.platform == "linux" else subprocess.PIPE
        with open(self.folder / "stdout.txt", "wb") as stdout, open(self.folder / STDERR, "wb") as stderr:

            def start() -> "subprocess.Popen[bytes] | ForkedProcess":
                if server is not None:
                    return server.fork(task_file, tmp, stdout.fileno(), stderr.fileno())
                return subprocess.Popen(
                    command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=tmp, env=self.env, pass_fds=self.pass_fds,
                    start_new_session=True,
                )  # fmt: skip

            return self.children.start(start)

    def _await_end(self, child: Child) -> None:
        """Return when the child has ended for any reason. It is not reaped yet, so no other process has its pid."""
        deadline = float("inf") if self.timeout_s is None else time.monotonic() + self.timeout_s
        with processes.ProcessExit(child.process.pid) as gone:
            while True:
                step = min(
                    max(0.0, deadline - time.monotonic()), float("inf") if self.watch_bytes is None else _WATCH_S
                )
                if gone.wait(None if step == float("inf") else step):
                    return
                if time.monotonic() >= deadline:
                    child.ended_by = child.ended_by or "timeout"
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child.process.pid, signal.SIGTERM)
                    if not gone.wait(_GRACE_S):
                        self.children.end(child, "timeout")
                        gone.wait(None)
                    return
                if self.watch_bytes is not None:
                    used = processes.tree_bytes(child.process.pid)
                    child.peak_bytes = max(child.peak_bytes, used)
                    if used > self.watch_bytes:
                        self.children.end(child, "memory")
                        gone.wait(None)
                        return

    def _reap(self, child: Child) -> tuple[int | None, int | None, list[int]]:
        """Kill the rest of the child's process group and reap the child. Return (exit code, peak bytes, pids that did not die)."""
        pid = child.process.pid
        before = processes.high_water(os.getpid())
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # A finished stage may leave helpers running. The child is not reaped yet, so the group's id is still its own.
            os.killpg(pid, signal.SIGKILL)
        self.children.give_up(child)
        code: int | None
        if isinstance(child.process, ForkedProcess):
            code, peak = child.process.reap()
            return code, max(peak, child.peak_bytes) or None, processes.still_there(pid)
        try:
            _, status, usage = os.wait4(pid, 0)
        except ChildProcessError:  # SIGCHLD is ignored in this process: the kernel reaped the child
            child.process.returncode = 0
            return None, child.peak_bytes or None, processes.still_there(pid)
        # Set, so that Popen does not wait for the child again.
        child.process.returncode = code = os.waitstatus_to_exitcode(status)
        if child.process.stdin is not None:
            child.process.stdin.close()
        peak = usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss * 1024
        if peak <= before:  # a vforked child starts with its parent's figure, which says nothing about the child
            peak = 0
        return code, max(peak, child.peak_bytes) or None, processes.still_there(pid)

    def _finish(self, result: TaskResult, code: int | None, peak: int | None) -> TaskResult:
        """Add the facts that only this process knows and write the result. A full disk loses the file, never the result."""
        result.seconds, result.exit = time.monotonic() - self.started, autopsy.exit_name(code)
        result.peak_bytes = max(result.peak_bytes or 0, peak or 0) or None
        try:
            result.write(self.task.result)
        except OSError as error:
            result.doubts.append(f"result.json could not be written: {error}")
        return result


def child_environment(tmp: Path) -> dict[str, str]:
    """Return the inherited environment with the variables that make a task reproducible, quiet and able to import ane_sweep."""
    env = protocol.python_environment()
    env |= {
        PARENT_VARIABLE: str(os.getpid()),
        "TMPDIR": str(tmp),
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if sys.platform == "linux":
        env.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")  # docs/rulings.md
        if not env.keys() & set(WAITING_VARIABLES):
            env["GOMP_SPINCOUNT"] = SPINCOUNT
    if script := env.get(stand_in.VARIABLE):
        env[stand_in.VARIABLE] = os.path.abspath(script)  # the child has another working folder
    return env

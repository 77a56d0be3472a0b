"""Real processes: wait for one without polling, kill a tree of them, list survivors, read their memory.

Waiting is one blocking call on a process descriptor (Linux pidfd, macOS kqueue). `Popen.wait(timeout=...)` would poll,
up to 20 times a second, and disturb the process that is being timed.
"""

import contextlib
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from ane_sweep.bridge.protocol import status_fields

_GONE_S = 5.0  # SIGKILLed processes can take a moment to leave when they held a lot of memory


class ProcessExit:
    """A wait for the end of a child process, without polling and without reaping it."""

    def __init__(self, pid: int) -> None:
        self._gone, self._open = False, contextlib.ExitStack()
        self._look: Callable[[float | None], object]  # true once the process has ended; waits so many seconds
        if sys.platform != "linux":
            events = select.kqueue()
            self._open.callback(events.close)
            self._look = lambda seconds: events.control(None, 1, seconds)
            try:
                events.control([select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)], 0)
            except ProcessLookupError:  # ended before we could look
                self._gone = True
            return
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # a kernel before 5.3, or a sandbox without the call: a thread blocks in waitid instead
            ended = threading.Event()
            self._look = ended.wait

            def block() -> None:
                with contextlib.suppress(ChildProcessError):
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                ended.set()

            threading.Thread(target=block, daemon=True).start()
        else:
            self._open.callback(os.close, descriptor)
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            self._look = lambda seconds: poll.poll(None if seconds is None else min(seconds * 1000, 2**31 - 1))

    def __enter__(self) -> "ProcessExit":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def wait(self, seconds: float | None) -> bool:
        """Block until the process has ended or `seconds` are over (None: no limit); return True if it has ended."""
        self._gone = self._gone or bool(self._look(seconds))
        return self._gone


def still_there(group: int) -> list[int]:
    """Return the living processes of a group, after giving killed ones time to end."""
    deadline = time.monotonic() + _GONE_S
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return []
        except PermissionError:  # macOS says so for zombies
            pass
        living = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                # Zombies hold nothing.
                if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                    living.append(process.pid)
        if not living or time.monotonic() > deadline:
            return living
        time.sleep(0.02)


def kill_tree(pid: int) -> None:
    """Kill a process's group, and its descendants in other groups, with SIGKILL."""
    try:
        descendants = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        descendants = []
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for process in descendants:
        with contextlib.suppress(psutil.Error):
            process.kill()


def end_all_with(variable: str, folder: Path) -> None:
    """Kill the processes whose environment had `variable` set to a folder, or one below it, when they started.

    This finds processes that a task detached, if the task's own process died before it could end them. It looks again at
    all after a kill, as the killed may have forked, and while a process in the midst of an exec shows no environment.
    """
    deadline, again = time.monotonic() + _GONE_S, True
    while again and time.monotonic() < deadline:
        again = False
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if not (environment := process.environ()):
                    again = again or bool(not process.cmdline() and process.exe())
                    environment = process.environ()
                if Path(environment.get(variable, "")).is_relative_to(folder):
                    process.kill()
                    again = True
        time.sleep(0.01 * again)


def tree_bytes(pid: int) -> int:
    """Return the bytes of a process and its descendants that cannot be reclaimed; 0 if it is gone.

    Linux: anonymous and shared-memory pages, without the clean pages of mapped files (a 6 GB checkpoint that is
    mapped, not read, does no harm). Elsewhere: resident memory.
    """
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            fields = status_fields(process.pid)
            total += fields["RssAnon"] + fields["RssShmem"] if "RssAnon" in fields else process.memory_info().rss
    return total


def high_water(pid: int) -> int:
    """Return the peak resident bytes of a living process (Linux VmHWM); 0 if unknown."""
    return status_fields(pid).get("VmHWM", 0)


def oom_kills() -> int:
    """Return how many processes of this cgroup (v2, v1; else of this machine) the kernel's out-of-memory killer has ended."""
    for path in _oom_counters():
        with contextlib.suppress(OSError):
            found = re.search(r"^oom_kill (\d+)$", path.read_text(encoding="ascii"), re.MULTILINE)
            if found:
                return int(found[1])
    return 0


def _oom_counters() -> list[Path]:
    paths = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                paths.append(Path(f"/sys/fs/cgroup{path}/memory.events"))
            elif "memory" in controllers.split(","):
                paths.append(Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control"))
    return [*paths, Path("/proc/vmstat")]

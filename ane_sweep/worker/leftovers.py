"""Processes that a task's code detaches (a double fork, a session of their own): they end with the task. Linux only.

Such a process loses its parent and would go to init. A process that asks the kernel to (PR_SET_CHILD_SUBREAPER) becomes the
new parent of every descendant that loses its own, so that none escapes from below it.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_MOST_S = 5.0  # a killed process can take a moment to leave; one that the kernel holds is not waited for longer


def adopt_orphans() -> None:
    """Become the parent of each descendant that loses its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, *[ctypes.c_ulong(number) for number in (1, 0, 0, 0)])


def end_children(spared: Collection[int] = ()) -> None:
    """Kill the children of this process, and then those that it inherits from them, until none but the spared ones are left."""
    deadline = time.monotonic() + _MOST_S
    while (left := _children() - set(spared)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    time.sleep(0.001)


def _children() -> set[int]:
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):  # each thread has those that it started
        with contextlib.suppress(OSError):  # the thread has ended
            found |= {int(pid) for pid in path.read_text(encoding="ascii").split()}
    return found

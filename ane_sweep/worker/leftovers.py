"""Ending processes that a task's code detached (by a double fork or a session of their own). Linux only.

A detached process loses its parent and would go to init. A process that asks the kernel for it (PR_SET_CHILD_SUBREAPER)
becomes the new parent of every descendant that loses its own, so that no descendant escapes.
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
    """Make this process the parent of each descendant that loses its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, *[ctypes.c_ulong(number) for number in (1, 0, 0, 0)])


def end_children(spared: Collection[int] = ()) -> None:
    """Kill this process's children, and then the orphans that it inherits from them, until only the spared ones run."""
    deadline = time.monotonic() + _MOST_S
    while (running := _list_children() - set(spared)) and time.monotonic() < deadline:
        for pid in running:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    time.sleep(0.001)


def _list_children() -> set[int]:
    children: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):  # each thread has those that it started
        with contextlib.suppress(OSError):  # the thread has ended
            children |= {int(pid) for pid in path.read_text(encoding="ascii").split()}
    return children

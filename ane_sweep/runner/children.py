"""The workers that are alive now."""

import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ane_sweep.bridge.protocol import Interrupted
from ane_sweep.machine import processes
from ane_sweep.runner.warm import Forked


@dataclass(eq=False)
class Child:
    """A running worker. `ended_by` says why *we* ended it: timeout, memory or interrupt; None while nobody did."""

    process: subprocess.Popen | Forked
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

    def start(self, spawn: Callable[[], subprocess.Popen | Forked]) -> Child:
        """Spawn and register in one step. Raises Interrupted after kill_all."""
        with self._lock:
            if self._stopping:
                raise Interrupted("the sweep is being stopped; this task was not started")
            child = Child(spawn())
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

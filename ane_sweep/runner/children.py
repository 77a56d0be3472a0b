"""The running child processes of a sweep, and how a signal ends them."""

import contextlib
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

from ane_sweep.bridge.protocol import Interrupted
from ane_sweep.errors import StoreError
from ane_sweep.machine import processes
from ane_sweep.runner.fork_server import ForkedProcess, ForkServers


@dataclass(eq=False)
class Child:
    """A running task's process. `ended_by`: the reason why we ended it (timeout, memory or interrupt), or None."""

    process: subprocess.Popen[bytes] | ForkedProcess
    ended_by: str | None = None
    peak_bytes: int = 0


class Children:
    """The running children, so that Ctrl-C in the main thread can end those of every thread.

    `_stopping` is a plain flag, not a threading.Event: kill_all may run in a signal handler of the very thread that uses it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entrant: kill_all may be called by a signal handler in the midst of start
        self._live: set[Child] = set()
        self._stopping = False

    def start(self, spawn: Callable[[], subprocess.Popen[bytes] | ForkedProcess]) -> Child:
        """Spawn and register a child in one step. Raises Interrupted after kill_all."""
        with self._lock:
            if self._stopping:
                raise Interrupted("the sweep is being stopped; this task was not started")
            child = Child(spawn())
            self._live.add(child)
            if self._stopping:  # the signal came while we were spawning
                self.end(child, "interrupt")
            return child

    def end(self, child: Child, why: str) -> None:
        """Kill a child's whole process tree, unless `give_up` was called (another process may have its pid by then)."""
        with self._lock:
            if child in self._live:
                child.ended_by = child.ended_by or why
                child.peak_bytes = max(child.peak_bytes, processes.high_water(child.process.pid))
                processes.kill_tree(child.process.pid)

    def give_up(self, child: Child) -> None:
        """Never signal this child again. Call it right before reaping, which frees the pid."""
        with self._lock:
            self._live.discard(child)

    def kill_all(self) -> None:
        """End every child and refuse new ones; each run_task then raises Interrupted in its own thread."""
        with self._lock:
            self._stopping = True
            for child in list(self._live):
                self.end(child, "interrupt")

    def reopen(self) -> None:
        """Allow new children again after kill_all."""
        self._stopping = False


CHILDREN = Children()


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event, fork_servers: ForkServers) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM end every child at once, set `stop`, and then raise KeyboardInterrupt."""

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()
        CHILDREN.kill_all()
        fork_servers.stop()

    CHILDREN.reopen()
    in_main = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)} if in_main else {}
    try:
        yield
    except (Interrupted, StoreError):
        if not stop.is_set():
            raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if stop.is_set():  # also if the signal met no child
        raise KeyboardInterrupt

"""Workers forked from import-only parents (worker/fork_server.py) in place of being started cold.

Importing torch takes a second and more, coremltools and transformers four: of a tiny task that is nearly all. A parent
has imported what a kind of task needs and does nothing else; each task is still one fresh process, that begins with the
imports done and ends alone.

    who has which      what a stage and its runtime declare (`warm`); a task that declares nothing starts cold
    environment        libraries read it while they are loaded, so a parent has exactly that of its children (but for
                       TMPDIR): tasks of another one, say of other thread counts, have another parent
    memory limit       a fork has its parent's mappings: a task whose limit is not above those starts cold
    timing             each round has a parent of its own. Children of one parent have one memory layout, which moves
                       timings, so repeats of a timing are of several, as fresh processes are
    not here           not on Linux (of macOS, frameworks that libraries load with them do not survive a fork: Apple's
                       Objective-C runtime ends such a child), without pidfd_open, or where a script stands in for a
                       Mac: its clocks must be in place before anything is imported. Nor where ANE_SWEEP_COLD is set
    when one dies      its children die with it; what they were doing is started again, cold
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ane_sweep.bridge.protocol import PARENT_VARIABLE
from ane_sweep.bridge.runtimes import RUNTIMES
from ane_sweep.bridge.stages import ALL
from ane_sweep.machine import stand_in

COLD_VARIABLE = "ANE_SWEEP_COLD"  # set: every task starts cold
_MESSAGE_BYTES = 1 << 16
_OWN = {PARENT_VARIABLE, "TMPDIR"}  # of each task; nothing reads them while it is loaded
_ROOM_BYTES = 64 << 20  # below this, a task would end on its first allocations: started cold it says what is too much


def imports(stage_name: str, params: dict[str, Any]) -> tuple[str, ...]:
    """What a parent of such a task has loaded; nothing: it starts cold."""
    stage = ALL[stage_name].warm
    if not stage or "runtime" not in params:
        return stage
    runtime = RUNTIMES[params["runtime"]].warm
    return (*stage, *runtime) if runtime else ()


def possible() -> bool:
    if sys.platform != "linux" or os.environ.get(COLD_VARIABLE) or stand_in.active() is not None:
        return False
    return hasattr(os, "pidfd_open") and _pidfd_works()


def _pidfd_works() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # a sandbox without the call: then only a child of ours can be waited for
        return False
    return True


class Lost(OSError):
    """The parent is gone, or says what it should not."""


class Forked:
    """A task's process, as `subprocess.Popen` gives one: its parent is not this process, so that one reaps it."""

    stdin = None

    def __init__(self, pid: int, parent: "Parent"):
        self.pid, self.returncode, self._parent = pid, None, parent

    def reap(self) -> tuple[int | None, int]:
        """(exit code, peak bytes) once it has ended; no code where its parent is gone, and it with it."""
        try:
            said = self._parent.ask({"reap": self.pid})
        except Lost:
            return None, 0
        return os.waitstatus_to_exitcode(said["status"]), said["peak_bytes"]

    @property
    def orphaned(self) -> bool:
        """Whether it died of its parent's death."""
        return self._parent.gone


class Parent:
    """One import-only parent."""

    def __init__(self, python: str, modules: Sequence[str], env: dict[str, str]):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket, self._lock, self.gone = ours, threading.Lock(), False
        try:
            with theirs:
                self.process = subprocess.Popen(
                    [python, "-P", "-m", "ane_sweep.worker.fork_server", str(theirs.fileno()), *modules],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=env,
                    cwd="/",
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError:
            ours.close()
            raise
        self._data_bytes: int | None = None

    def data_bytes(self) -> int:
        """Private memory that its children begin with, once its imports are done. Raises Lost where they fail."""
        with self._lock:
            if self._data_bytes is None:
                self._data_bytes = self._heard()["data_bytes"]
            return self._data_bytes

    def fork(self, task: Path, tmp: Path, stdout: int, stderr: int) -> Forked:
        """Raises OSError: what Popen would, or Lost."""
        said = self.ask({"task": str(task), "tmp": str(tmp)}, [stdout, stderr])
        return Forked(said["pid"], self)

    def ask(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """One question, one answer. What interrupts it ends the parent: nobody could tell whose the next answer is."""
        with self._lock:
            if self.gone:
                raise Lost("the parent is gone")
            try:
                socket.send_fds(self._socket, [json.dumps(message).encode()], descriptors)
                return self._heard()
            except (BrokenPipeError, ConnectionResetError) as error:
                self.kill()
                raise Lost(f"the parent is gone: {error}") from error
            except OSError:
                raise
            except BaseException:
                self.kill()
                raise

    def _heard(self) -> dict[str, Any]:
        said = self._socket.recv(_MESSAGE_BYTES)
        if not said:
            self.kill()
            raise Lost("the parent is gone")
        answer: dict[str, Any] = json.loads(said)
        if "error" in answer:
            if (number := answer.get("errno")) is None:
                self.kill()
                raise Lost(answer["error"])
            raise OSError(number, answer["error"])
        return answer

    def kill(self) -> None:
        """At once, with all its children. May be called in a signal handler: it waits for nothing."""
        self.gone = True
        self.process.kill()

    def end(self) -> None:
        self.kill()
        self.process.wait()
        self._socket.close()


class Parents:
    """Those of a sweep. To be closed when no task runs any more. `cold`: there shall be none."""

    def __init__(self, cold: bool = False) -> None:
        self._lock, self._live = threading.Lock(), dict[Any, Parent]()
        self._hopeless, self._round, self._stopped = set[Any](), 0, False
        self._possible = not cold and possible()

    def __enter__(self) -> "Parents":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._end_all()

    def begin(self, number: int) -> None:
        """A round of timing: the parents of the one before, or of preparation, end. Nothing of theirs may still run."""
        if number != self._round:
            self._round = number
            self._end_all()

    def stop(self) -> None:
        """Kill all and start no more; may be called in a signal handler."""
        self._stopped = True
        for parent in list(self._live.values()):
            parent.kill()

    def _end_all(self) -> None:
        with self._lock:
            ended, self._live = list(self._live.values()), {}
        for parent in ended:
            parent.end()

    def of(self, modules: Sequence[str], env: dict[str, str], python: str, limit: int | None) -> Parent | None:
        """The parent with these imports and this environment, started where there is none; None: start it cold."""
        if not modules or not self._possible:
            return None
        kept = {name: value for name, value in env.items() if name not in _OWN}
        key = (python, tuple(modules), tuple(sorted(kept.items())))
        try:
            parent = self._living(key, kept)
            if parent is None:
                return None
            least = parent.data_bytes() + _ROOM_BYTES
        except OSError:
            self._hopeless.add(key)
            return None
        return parent if limit is None or limit >= least else None

    def _living(self, key: Any, env: dict[str, str]) -> Parent | None:
        with self._lock:
            known = self._live.get(key)
            if known is not None and known.gone:  # it has died once: not again
                self._hopeless.add(key)
            if key in self._hopeless or self._stopped:
                return None
            if known is None:
                known = self._live[key] = Parent(key[0], key[1], env)
            return known

"""Fork servers: processes that import the modules of a kind of task and fork each task (worker/fork_server.py runs in
them).

Importing torch takes a second and more, coremltools and transformers four, which is most of a tiny task's time. Each
task is still one fresh process, which begins with the imports done.

    imports            those that a stage and its runtime declare (`warm`); a task that declares none starts cold. Servers that
                       import torch are forked from one that has imported it
    environment        libraries read it while they are loaded, so a server has exactly that of its children (except
                       TMPDIR): tasks of another environment, say offline, have another server
    memory limit       a fork has its server's mappings: a task whose limit is not above those starts cold
    timing             each round has a server of its own. Children of one server have one memory layout, which moves
                       timings, so repeats of a timing come from several servers
    starts cold        tasks off Linux (on macOS, frameworks that libraries load do not survive a fork: Apple's
                       Objective-C runtime ends such a child), without pidfd_open, or with a simulated Mac, whose clocks
                       must be set before any import; every task if ANE_SWEEP_COLD is set
    a server's death   its children die too; their tasks start again, cold
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec

from ane_sweep.bridge import conversion
from ane_sweep.bridge.protocol import PARENT_VARIABLE
from ane_sweep.bridge.runtimes import RUNTIMES
from ane_sweep.bridge.stages import ALL
from ane_sweep.machine import stand_in

COLD_VARIABLE = "ANE_SWEEP_COLD"  # set: every task starts cold
_MESSAGE_BYTES = 1 << 16
_OWN = {PARENT_VARIABLE, "TMPDIR"}  # differ from task to task; no library reads them while it is loaded
_FIRST = ("torch",)  # what takes longest to import and most tasks need
_ROOM_BYTES = 64 << 20  # with less, a task would end on its first allocations: a cold start says what is too much
_Key: TypeAlias = tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]  # Python, imports, environment


class Reply(msgspec.Struct):
    """An answer of a fork server; its fields depend on the question (worker/fork_server.py)."""

    pid: int = 0
    status: int = 0
    peak_bytes: int = 0
    data_bytes: int = 0
    error: str | None = None
    errno: int | None = None


def list_imports(stage_name: str, params: Mapping[str, object]) -> tuple[str, ...]:
    """Return the modules that a task's fork server imports; none if the task starts cold."""
    stage = ALL[stage_name].warm
    if not stage or "runtime" not in params:
        return stage
    runtime = RUNTIMES[str(params["runtime"])].warm
    return (*stage, *runtime) if runtime else ()


def can_fork() -> bool:
    """Return True if tasks may be forked on this host."""
    if sys.platform != "linux" or os.environ.get(COLD_VARIABLE) or stand_in.active() is not None:
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # a sandbox without the call: then only a child of ours can be waited for
        return False
    return True


class ServerLost(OSError):
    """Raised if a fork server is gone or gives no valid answer."""


class ForkedProcess:
    """A process that a fork server forked: a task's, or another server. The server reaps it, being its parent."""

    def __init__(self, pid: int, server: "ForkServer"):
        self.pid, self.server = pid, server

    def reap(self) -> tuple[int | None, int]:
        """Return (exit code, peak bytes) of a process that has ended; (None, 0) if its server is gone."""
        try:
            reply = self.server.ask({"reap": self.pid})
        except ServerLost:
            return None, 0
        return os.waitstatus_to_exitcode(reply.status), reply.peak_bytes

    def kill(self) -> None:
        if not self.server.gone:  # else the pid may be another's: without its socket to us a server ends by itself
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    wait = reap


class ForkServer:
    """One fork server: its process and the socket to it. `start` starts a server of the socket's other end."""

    def __init__(self, start: Callable[[int], subprocess.Popen[bytes] | ForkedProcess]):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock, self.gone = threading.Lock(), False
        self._data_bytes: int | None = None
        try:
            with theirs:
                self.process = start(theirs.fileno())
        except OSError:
            self._socket.close()
            raise

    @classmethod
    def spawn(cls, python: str, modules: Sequence[str], env: dict[str, str]) -> "ForkServer":
        return cls(
            lambda theirs: subprocess.Popen(
                [python, "-P", "-m", "ane_sweep.worker.fork_server", str(theirs), *modules], env=env, cwd="/",
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=[theirs], start_new_session=True,
            )
        )  # fmt: skip

    def extend(self, modules: Sequence[str]) -> "ForkServer":
        """Fork a server that imports more modules. Raises OSError, and ServerLost."""
        self.data_bytes()
        return ForkServer(lambda theirs: ForkedProcess(self.ask({"imports": modules}, [theirs]).pid, self))

    def data_bytes(self) -> int:
        """Return the private memory that children begin with, after the imports. Raises ServerLost if the imports fail."""
        with self._lock:
            if self._data_bytes is None:
                self._data_bytes = self._receive().data_bytes
            return self._data_bytes

    def fork(self, task: Path, tmp: Path, stdout: int, stderr: int) -> ForkedProcess:
        """Fork a process for a task. Raises OSError as Popen does, and ServerLost."""
        return ForkedProcess(self.ask({"task": str(task), "tmp": str(tmp)}, [stdout, stderr]).pid, self)

    def ask(self, message: Mapping[str, str | int | Sequence[str]], descriptors: Sequence[int] = ()) -> Reply:
        """Send a question and return its answer. An interruption ends the server, as the next answer could belong to either question."""
        with self._lock:
            if self.gone:
                raise ServerLost("the fork server is gone")
            try:
                socket.send_fds(self._socket, [json.dumps(message).encode()], descriptors)
                return self._receive()
            except (BrokenPipeError, ConnectionResetError) as error:
                self.kill()
                raise ServerLost(f"the fork server is gone: {error}") from error
            except OSError:
                raise
            except BaseException:
                self.kill()
                raise

    def _receive(self) -> Reply:
        message = self._socket.recv(_MESSAGE_BYTES)
        if not message:
            self.kill()
            raise ServerLost("the fork server is gone")
        reply = conversion.decode(message, Reply)
        if reply.error is not None:
            if reply.errno is None:
                self.kill()
                raise ServerLost(reply.error)
            raise OSError(reply.errno, reply.error)
        return reply

    def kill(self) -> None:
        """Kill the server and all its children at once. Safe in a signal handler: it does not wait."""
        self.gone = True
        self.process.kill()

    def end(self) -> None:
        """Kill the server and wait for its end."""
        self.kill()
        self.process.wait()
        self._socket.close()


class ForkServers:
    """The fork servers of a sweep. Leave this context only when no task runs any more.

    cold   start every task cold, without a server
    """

    def __init__(self, cold: bool = False) -> None:
        self._lock, self._live = threading.Lock(), dict[_Key, ForkServer]()
        self._failed, self._round, self._stopped = set[_Key](), 0, False
        self._can_fork = not cold and can_fork()

    def __enter__(self) -> "ForkServers":
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._end_all()

    def begin_round(self, number: int) -> None:
        """End the servers of the previous round of timing, or of preparation. Their children must have ended."""
        if number != self._round:
            self._round = number
            self._end_all()

    def _end_all(self) -> None:
        with self._lock:
            ended, self._live = list(self._live.values()), {}
        for server in reversed(ended):  # what was forked from another is reaped by it
            server.end()

    def stop(self) -> None:
        """Kill all servers and start no more. Safe in a signal handler."""
        self._stopped = True
        for server in reversed(list(self._live.values())):
            server.kill()

    def get(self, modules: Sequence[str], env: dict[str, str], python: str, limit: int | None) -> ForkServer | None:
        """Return the server with these imports and this environment, started if needed; None if the task must start cold.

        limit   bytes of memory that the task may use
        """
        if not modules or not self._can_fork:
            return None
        shared_env = {name: value for name, value in env.items() if name not in _OWN}
        key = (python, tuple(modules), tuple(sorted(shared_env.items())))
        try:
            with self._lock:
                if key in self._live and self._live[key].gone:  # it is not started a second time
                    self._failed.add(key)
                if key in self._failed or self._stopped:
                    return None
                server = self._find_or_start(key)
            least = server.data_bytes() + _ROOM_BYTES
        except OSError:
            self._failed.add(key)
            return None
        return server if limit is None or limit >= least else None

    def _find_or_start(self, key: _Key) -> ForkServer:
        """Return the server of a key. One that imports more than torch is forked from the server of torch alone."""
        python, modules, variables = key
        if key not in self._live:
            if set(_FIRST) < set(modules):
                self._live[key] = self._find_or_start((python, _FIRST, variables)).extend(modules)
            else:
                self._live[key] = ForkServer.spawn(python, modules, dict(variables))
        return self._live[key]

"""A process that imports modules once and forks workers: `python -m ane_sweep.worker.fork_server SOCKET MODULE...`.

The runner starts it (runner/fork_server.py). After the imports it only forks: each child is one task in a process of its own, as
child.py runs it, with the imports done. Linux only: see runner/fork_server.py.

Each request over the packet socket gets one answer:

    at the start                      {"data_bytes"}: the server's own private memory, or {"error"}
    {"task", "tmp"} + stdout, stderr  {"pid"} of the child, which has a session of its own by then, or {"error", "errno"}
    {"imports": modules} + socket     {"pid"} of another server, which imports these, too, and answers on the socket
    {"reap": pid}                     {"status", "peak_bytes"}: a child stays a zombie, and keeps its pid, until it is reaped

A fork copies one thread only: locks that other threads held would stay locked in the child. The only other threads are
those of OpenBLAS (numpy and scipy start them when they are loaded); OpenBLAS ends them before every fork and starts them
anew when it multiplies, which the server never does. The server checks this before each fork and refuses otherwise.

The server ends when the runner's end of the socket closes, however the runner ended. Its children (child.py) and all
processes that they have detached (leftovers.py) end with it.
"""

import contextlib
import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

from ane_sweep.bridge import protocol
from ane_sweep.bridge.protocol import PARENT_VARIABLE
from ane_sweep.memory_limits import pause_collection
from ane_sweep.worker import child, imports, leftovers

_MESSAGE_BYTES = 1 << 16
_workers: set[int] = set()  # that are not reaped yet
Answer = dict[str, int | str | None]


def main(arguments: Sequence[str]) -> NoReturn:
    channel = socket.socket(fileno=int(arguments[0]))
    imports.skip_unused()
    leftovers.adopt_orphans()
    try:
        with pause_collection():  # hardly anything of what is imported is garbage: 2.3 of 9 s
            for name in arguments[1:]:
                importlib.import_module(name)
            _freeze()
    except Exception as error:
        _send(channel, {"error": child.describe_error(error)})
        os._exit(1)
    _send(channel, {"data_bytes": protocol.status_fields().get("VmData")})
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 2)
        if not message:
            leftovers.end_children()
            os._exit(0)
        request = json.loads(message)
        if "reap" in request:
            answer = _reap_worker(request["reap"])
        elif "imports" in request:
            answer = _fork_server(request["imports"], descriptors[0], channel)
        else:
            answer = _fork_worker(request, descriptors, channel)
        _send(channel, answer)
        for descriptor in descriptors:
            os.close(descriptor)


def _freeze() -> None:
    """End OpenBLAS' threads, and exclude the loaded modules from the children's garbage collection."""
    if (first := os.fork()) == 0:
        os._exit(0)
    os.waitpid(first, 0)
    gc.freeze()
    _refuse_threads()


def _refuse_threads() -> None:
    if (count := len(os.listdir("/proc/self/task"))) > 1:
        raise RuntimeError(f"{count} threads run in the parent: a fork would copy one of them")


def _send(channel: socket.socket, answer: Answer) -> None:
    with contextlib.suppress(OSError):  # the runner is gone: the next message says so
        channel.send(json.dumps(answer).encode())


def _reap_worker(pid: int) -> Answer:
    """Reap a worker and end the processes that it has detached.

    A running worker stays the parent of its own descendants, so every other child of the server belonged to a dead
    worker.
    """
    _, status, usage = os.wait4(pid, 0)
    _workers.discard(pid)
    leftovers.end_children(_workers)
    return {"status": status, "peak_bytes": usage.ru_maxrss * 1024}


def _fork_server(modules: list[str], descriptor: int, channel: socket.socket) -> Answer:
    """Fork a server that goes on to import more modules. What it forks is its own: this one reaps the server alone."""
    try:
        _refuse_threads()
        pid = os.fork()
    except (OSError, RuntimeError) as error:
        return {"error": str(error), "errno": getattr(error, "errno", None)}
    if pid == 0:
        channel.close()
        _workers.clear()
        main([str(descriptor), *modules])
    _workers.add(pid)
    return {"pid": pid}


def _fork_worker(request: dict[str, str], descriptors: Sequence[int], channel: socket.socket) -> Answer:
    """Fork a worker; return when it is set up: from then on its group can be killed, and it prints to its own files."""
    server, (reading, writing) = os.getpid(), os.pipe()
    try:
        _refuse_threads()
        pid = os.fork()
    except (OSError, RuntimeError) as error:
        os.close(reading)
        os.close(writing)
        return {"error": str(error), "errno": getattr(error, "errno", None)}
    if pid == 0:
        os.close(reading)
        channel.close()
        _run_child(server, request, descriptors, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        trouble = pipe.read()
    if not trouble:
        _workers.add(pid)
        return {"pid": pid}
    os.waitpid(pid, 0)
    failure: Answer = json.loads(trouble)
    return failure


def _run_child(parent: int, request: dict[str, str], descriptors: Sequence[int], writing: int) -> NoReturn:
    """Set the forked child up as a spawned worker would be, then run the task and exit."""
    try:
        os.setsid()
        for target, descriptor in zip((1, 2), descriptors, strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.chdir(request["tmp"])
    except OSError as error:
        os.write(writing, json.dumps({"error": str(error), "errno": error.errno}).encode())
        os._exit(1)
    os.environ |= {PARENT_VARIABLE: str(parent), "TMPDIR": request["tmp"]}
    sys.argv = [child.__file__, request["task"]]
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # as a fresh process has it: the parent's state would be every child's
    os.close(writing)
    child.run_and_exit(sys.argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])

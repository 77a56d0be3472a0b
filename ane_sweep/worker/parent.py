"""An import-only parent of workers: `python -m ane_sweep.worker.parent SOCKET MODULE...` (runner/fork_server.py starts it).

It imports the modules and from then on does nothing but fork: each child is one task in a process of its own, as
child.py runs it, that begins with the imports done. Linux only: see runner/fork_server.py.

One message each way, of a packet socket:

    at the start                      {"data_bytes"}: its own private memory, or {"error"}
    {"task", "tmp"} + stdout, stderr  {"pid"} of the child, which has a session of its own by then, or {"error", "errno"}
    {"reap": pid}                     {"status", "peak_bytes"}: a child stays a zombie, and its pid its own, until asked for

A fork copies one thread only: with others, locks they held would stay locked in the child. The only ones there are those
of OpenBLAS (numpy and scipy start them when they are loaded), and OpenBLAS ends them before every fork and starts them
anew when it multiplies; the parent never does. That is checked before each fork, and refused otherwise.

It ends when the runner's end of the socket closes, however the runner ended, and with it go its children (child.py) and all
that they have detached (leftovers.py).
"""

import contextlib
import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ane_sweep.bridge import protocol
from ane_sweep.bridge.protocol import PARENT_VARIABLE
from ane_sweep.worker import child, imports, leftovers

_MESSAGE_BYTES = 1 << 16
_workers: set[int] = set()  # that are not reaped yet


def main(arguments: Sequence[str]) -> NoReturn:
    channel = socket.socket(fileno=int(arguments[0]))
    imports.skip_unused()
    leftovers.adopt_orphans()
    try:
        for name in arguments[1:]:
            importlib.import_module(name)
        _settle()
    except Exception as error:
        _say(channel, {"error": child.first_line(error)})
        os._exit(1)
    _say(channel, {"data_bytes": protocol.status_bytes("VmData")})
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 2)
        if not message:
            leftovers.end_children()
            os._exit(0)
        asked = json.loads(message)
        _say(channel, _reap(asked["reap"]) if "reap" in asked else _fork(asked, descriptors, channel))
        for descriptor in descriptors:
            os.close(descriptor)


def _settle() -> None:
    """Nothing left to do by itself: OpenBLAS' threads ended, what is loaded out of the children's garbage collection."""
    if (first := os.fork()) == 0:
        os._exit(0)
    os.waitpid(first, 0)
    gc.collect()
    gc.freeze()
    _refuse_threads()


def _refuse_threads() -> None:
    if (count := len(os.listdir("/proc/self/task"))) > 1:
        raise RuntimeError(f"{count} threads run in the parent: a fork would copy one of them")


def _say(channel: socket.socket, answer: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the runner is gone: the next message says so
        channel.send(json.dumps(answer).encode())


def _reap(pid: int) -> dict[str, Any]:
    """Reap a worker and end what it has detached: a living worker keeps its own below it, so whatever else came here is a dead one's."""
    _, status, usage = os.wait4(pid, 0)
    _workers.discard(pid)
    leftovers.end_children(_workers)
    return {"status": status, "peak_bytes": usage.ru_maxrss * 1024}


def _fork(asked: dict[str, str], descriptors: Sequence[int], channel: socket.socket) -> dict[str, Any]:
    """Answer when the child is set up: from then on its group can be killed, and what it prints goes to its files."""
    us, (heard, said) = os.getpid(), os.pipe()
    try:
        _refuse_threads()
        pid = os.fork()
    except (OSError, RuntimeError) as error:
        os.close(heard)
        os.close(said)
        return {"error": str(error), "errno": getattr(error, "errno", None)}
    if pid == 0:
        os.close(heard)
        channel.close()
        _become(us, asked, descriptors, said)
    os.close(said)
    with open(heard, "rb") as pipe:
        trouble = pipe.read()
    if not trouble:
        _workers.add(pid)
        return {"pid": pid}
    os.waitpid(pid, 0)
    return json.loads(trouble)


def _become(parent: int, asked: dict[str, str], descriptors: Sequence[int], said: int) -> NoReturn:
    """The child's side: what a spawned worker finds when it begins, then the task."""
    try:
        os.setsid()
        for target, descriptor in zip((1, 2), descriptors, strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.chdir(asked["tmp"])
    except OSError as error:
        os.write(said, json.dumps({"error": str(error), "errno": error.errno}).encode())
        os._exit(1)
    os.environ |= {PARENT_VARIABLE: str(parent), "TMPDIR": asked["tmp"]}
    sys.argv = [child.__file__, asked["task"]]
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # as a fresh process has it: the parent's state would be every child's
    os.close(said)
    child.end(sys.argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])

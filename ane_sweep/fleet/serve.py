"""The process of a fleet's scheduler or worker: `python -m ane_sweep.fleet.serve JSON`, started by `ane-sweep fleet`.

It listens on one port, with TLS; Dask's plain HTTP servers are not started. It ends when its stdin closes: the command
that started it holds that pipe, so a worker takes no more tasks once its command has ended, even by kill -9. Its tasks'
processes end with it.
"""

import asyncio
import errno
import os
import socket
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from ane_sweep.bridge import conversion
from ane_sweep.fleet import address, link, members
from ane_sweep.terminal import BAD_CONFIGURATION, NOT_ALL_OK, OK, protect_streams, say

_GRACE_S = 3.0  # for saying goodbye
_NO_LISTENING = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)


class Request(msgspec.Struct):
    """A scheduler or worker to serve.

    scheduler  the address that a worker joins; None: serve a scheduler
    host       the only address to listen on; "": the one from which this machine reaches the scheduler
    """

    host: str
    port: int
    certificates: str
    scheduler: str | None = None
    name: str = ""
    threads: int = 1
    resources: dict[str, float] = {}
    scratch: str = ""


class Server(Protocol):
    """The part of distributed's Scheduler and Worker that is used here."""

    address: str
    listen_address: str

    def start(self) -> Coroutine[None, None, object]: ...
    def finished(self) -> Coroutine[None, None, object]: ...
    def close(self, *, reason: str) -> Coroutine[None, None, object]: ...


def main(text: str) -> None:
    protect_streams()
    request = conversion.decode(text, Request)
    try:
        code = asyncio.Runner().run(_serve(request))  # and not closed: that would wait for the threads of tasks
    except Exception as error:  # of the many that Dask wraps its own in
        code = _explain(error.__cause__ or error, request)
    sys.stdout.flush()
    os._exit(code)  # whatever tasks still run: their processes end with this one


async def _serve(request: Request) -> int:
    """Serve until stdin or the server ends. Return the exit code."""
    ended = asyncio.Event()
    threading.Thread(target=_watch_stdin, args=(asyncio.get_running_loop(), ended), daemon=True).start()
    stop = asyncio.ensure_future(ended.wait())
    server = _server(request)
    start = asyncio.ensure_future(server.start())
    await asyncio.wait([stop, start], return_when=asyncio.FIRST_COMPLETED)
    if start.done():
        await start
        where = f"the scheduler listens at {server.listen_address}; no other port is open"
        if request.scheduler is not None:
            joined = f"worker {request.name} joined {request.scheduler}"
            where = f"{joined}; it listens at {server.address}, and at no other port"
        print(where, flush=True)
        await asyncio.wait([stop, asyncio.ensure_future(server.finished())], return_when=asyncio.FIRST_COMPLETED)
    with suppress(Exception):  # whatever Dask says of a connection that is gone
        await server.close(reason="its command ended")
    return OK


def _server(request: Request) -> Server:
    package = link.distributed()
    from distributed import Scheduler, Worker

    if request.scheduler is not None:
        request.host = package.utils.get_ip(address.host_and_port(request.scheduler)[0])
    host = f"[{request.host}]" if ":" in request.host else request.host
    safe = link.security(Path(request.certificates))
    options = {"host": host, "port": request.port, "security": safe, "protocol": "tls", "dashboard": False}
    if request.scheduler is not None:
        options |= {
            "scheduler_ip": request.scheduler, "name": request.name, "nthreads": request.threads,
            "resources": request.resources, "memory_limit": 0, "local_directory": request.scratch,
            "startup_information": {members.FACTS: lambda _: members.facts()},
        }  # fmt: skip
    kind = Scheduler if request.scheduler is None else Worker
    one_port = type(f"OnePort{kind.__name__}", (kind,), {"start_http_server": lambda *_, **__: None})
    server: Server = one_port(**options)
    return server


def _watch_stdin(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    while os.read(0, 1):
        pass
    loop.call_soon_threadsafe(ended.set)
    threading.Event().wait(_GRACE_S)
    os._exit(OK)


def _explain(error: BaseException, request: Request) -> int:
    """Print one line on why it could not start. Return the exit code: 2 if it cannot listen at the requested address."""
    is_refused = isinstance(error, OSError) and error.filename is None and error.errno in _NO_LISTENING
    if is_refused or isinstance(error, socket.gaierror):
        say(f"error: cannot listen at {request.host}, port {request.port}: {error}")
        return BAD_CONFIGURATION
    say(f"error: it could not start ({type(error).__name__}: {error})")
    return NOT_ALL_OK


if __name__ == "__main__":
    main(sys.argv[1])

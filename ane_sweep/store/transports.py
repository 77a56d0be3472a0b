"""The parts of ours in fsspec's file systems: what stops a file on its way, SFTP with checks, and HTTP with limits."""

import threading
from typing import TYPE_CHECKING

from fsspec.callbacks import Callback
from fsspec.config import conf

from ane_sweep.errors import StoreError, Unfit

if TYPE_CHECKING:
    import aiohttp
    from fsspec.implementations.sftp import SFTPFileSystem

CONNECT_S, ANSWER_S, ALIVE_S = 15, 60, 15


class Stopped(StoreError):
    """Raised when the sweep stops before a file has arrived."""


class Halting(Callback):
    """A callback that a file system calls after each piece: it raises Stopped once `stop` is set, Unfit after more than `most` bytes.

    Ctrl-C then does not wait for gigabytes.
    """

    def __init__(self, stop: threading.Event, most: int | None = None) -> None:
        super().__init__()
        self.stop, self.most = stop, most

    def call(self, *_: object, **__: object) -> None:
        if self.stop.is_set():
            raise Stopped("the sweep is being stopped")
        if self.most is not None and self.value > self.most:
            raise Unfit(f"is longer than {self.most} bytes")


def connect_sftp(url: str) -> "tuple[SFTPFileSystem, str]":
    """Return an SFTP file system, and the folder in it.

    It connects only to hosts in ~/.ssh/known_hosts and has time limits: fsspec's own accepts any key that a host shows
    (paramiko's AutoAddPolicy), and waits without limit on a cut line.
    """
    import paramiko
    from fsspec.implementations.sftp import SFTPFileSystem

    class Sftp(SFTPFileSystem):
        cachable = False

        def _connect(self) -> None:
            self.client = paramiko.SSHClient()
            self.client.load_system_host_keys()
            self.client.set_missing_host_key_policy(paramiko.RejectPolicy())
            self.client.connect(self.host, **{"timeout": CONNECT_S, **self.ssh_kwargs})
            self.ftp = self.client.open_sftp()
            if (channel := self.ftp.get_channel()) is not None:
                channel.settimeout(ANSWER_S)
                channel.get_transport().set_keepalive(ALIVE_S)

        def put_file(self, lpath: str, rpath: str, callback: Callback | None = None, **_: object) -> None:
            self.ftp.put(lpath, rpath, callback and (lambda done, _: callback.absolute_update(done)))

        def get_file(self, rpath: str, lpath: str, callback: Callback | None = None, **_: object) -> None:
            self.ftp.get(rpath, lpath, callback and (lambda done, _: callback.absolute_update(done)))

    return Sftp(**Sftp._get_kwargs_from_urls(url)), Sftp._strip_protocol(url).rstrip("/")


def http_options() -> dict[str, object]:
    """Return the arguments of HTTPFileSystem, including the user's fsspec configuration of a client.

    Nothing is decompressed on arrival, so that a body has the file's length, which its manifest gives.
    """
    import aiohttp

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_other_hosts)
    theirs = {**conf.get("http", {}).get("client_kwargs", {}), **conf.get("https", {}).get("client_kwargs", {})}
    ours = {
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=ANSWER_S),
        "headers": {"Accept-Encoding": "identity"},
    }
    return {"client_kwargs": {**ours, **theirs, "auto_decompress": False, "trace_configs": [trace]}}


async def _refuse_other_hosts(session: object, context: object, params: "aiohttp.TraceRequestRedirectParams") -> None:
    """Raise StoreError for a redirect to another host or port, or from https to http; from http to https is allowed."""
    before, headers = params.response.url, params.response.headers
    after = before.join(type(before)(headers.get("Location") or headers.get("URI") or ""))
    same = after.host == before.host and (after.scheme, after.port) == (before.scheme, before.port)
    safer = after.host == before.host and (before.scheme, after.scheme) == ("http", "https")
    if not (same or safer):
        raise StoreError(f"it redirects to {after.origin()}, and a store is read from its own host alone")

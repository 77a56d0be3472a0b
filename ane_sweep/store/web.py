"""Options of fsspec's HTTP file system: files as they lie there, from the host that was named, and no waiting for ever."""

from typing import Any

import aiohttp
from fsspec.config import conf
from yarl import URL

from ane_sweep.errors import StoreError

CONNECT_S, ANSWER_S = 15, 60


def options() -> dict[str, Any]:
    """Return the arguments of HTTPFileSystem; what the user's configuration of fsspec says of a client is kept.

    Nothing is decompressed on arrival: a body's length is then that of the file, which its manifest names.
    """
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_other_hosts)
    theirs = {**conf.get("http", {}).get("client_kwargs", {}), **conf.get("https", {}).get("client_kwargs", {})}
    ours: dict[str, Any] = {
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=ANSWER_S),
        "headers": {"Accept-Encoding": "identity"},
    }
    return {"client_kwargs": {**ours, **theirs, "auto_decompress": False, "trace_configs": [trace]}}


async def _refuse_other_hosts(session: Any, context: Any, params: aiohttp.TraceRequestRedirectParams) -> None:
    """Raise StoreError for a redirect to another host or port, or from TLS to none; from http to https is fine."""
    before, headers = params.response.url, params.response.headers
    after = before.join(URL(headers.get("Location") or headers.get("URI") or ""))
    same = after.host == before.host and (after.scheme, after.port) == (before.scheme, before.port)
    safer = after.host == before.host and (before.scheme, after.scheme) == ("http", "https")
    if not (same or safer):
        raise StoreError(f"it redirects to {after.origin()}, and a store is read from its own host alone")

"""Connections to a fleet's scheduler."""

import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NotRequired, Protocol, TypedDict, TypeVar

from ane_sweep.bridge.settings import ExecutorSettings
from ane_sweep.errors import ConfigError
from ane_sweep.fleet import address, certificates

T = TypeVar("T")
# Dask's settings in every process of ours: no connection without TLS; the tasks of a lost worker fail at once; no stack
# sampling while something is timed; and no file is written that our own limits do not know.
CONFIG: dict[str, object] = {
    "distributed.comm.require-encryption": True,
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": True,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.comm.timeouts.connect": "10s",
    "distributed.comm.retry.count": 0,
    "distributed.scheduler.worker-ttl": "60s",
}


class Unreachable(ConfigError):
    """Raised if no scheduler answers at an address; one may answer later."""


class Distrusted(Unreachable):
    """Raised if the server at an address refuses our certificate, or shows none that we accept."""


class WorkerInfo(TypedDict):
    """The part of a worker's entry with the scheduler that is used here; `ane_sweep` holds the facts of a Member."""

    name: object
    resources: dict[str, float]
    ane_sweep: NotRequired[str]


class Security(Protocol):
    """The part of distributed.Security that is used here."""

    def get_connection_args(self, role: str) -> dict[str, ssl.SSLContext]: ...


class Future(Protocol):
    """The part of distributed.Future that the executor uses."""

    status: str

    def result(self, timeout: float | None = None) -> str: ...
    def exception(self) -> BaseException | None: ...
    def cancel(self, reason: str | None = None) -> None: ...
    def add_done_callback(self, fn: Callable[["Future"], None]) -> None: ...


class Client(Protocol):
    """The part of distributed.Client that is used here."""

    status: str

    def __enter__(self) -> "Client": ...
    def __exit__(self, *_: object) -> None: ...
    def close(self, timeout: float) -> None: ...
    def gather(self, futures: list[Future]) -> list[str]: ...
    def run(self, function: Callable[[str], None], *args: str, workers: list[str], on_error: str) -> object: ...
    def run_on_scheduler(self, function: Callable[..., T]) -> T: ...
    def scheduler_info(self, n_workers: int) -> dict[str, dict[str, WorkerInfo]]: ...
    def submit(self, function: Callable[[str], str], text: str, **options: object) -> Future: ...
    def subscribe_topic(self, topic: str, handler: Callable[[tuple[float, dict[str, str]]], None]) -> None: ...


def distributed() -> ModuleType:
    """Return the package `distributed`, configured for a fleet. Raises ConfigError if it is not installed."""
    try:
        import dask
        import distributed as package
    except ImportError:
        raise ConfigError("executor=dask needs distributed: pip install 'ane-sweep[fleet]'") from None
    dask.config.set(CONFIG)
    for name in ("distributed", "distributed.client", "distributed.core", "distributed.comm"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is said by us
    return package


def report_start(topic: str, key: str, machine: str) -> None:
    """Report on a Dask topic that the current task has begun; do nothing outside a worker's task."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    worker.log_event(topic, {"key": key, "name": worker.get_current_task(), "machine": machine})


def security(place: Path) -> Security:
    """Return the TLS settings for every connection of a fleet. Raises ConfigError without certificates."""
    if problem := certificates.missing(place):
        raise ConfigError(problem)
    files = {"ca_file": certificates.AUTHORITY}
    for role in ("client", "scheduler", "worker"):
        files |= {f"{role}_cert": certificates.CERTIFICATE, f"{role}_key": certificates.KEY}
    options = {f"tls_{what}": str(place / name) for what, name in files.items()}
    made: Security = distributed().Security(require_encryption=True, **options)
    return made


def settings(executor: ExecutorSettings) -> tuple[str, Path]:
    """Return (address, folder of certificates) of a sweep's `executor`. Raises ConfigError."""
    if executor.address is None:
        raise ConfigError(
            "executor=dask: executor.address=tls://HOST:8786 says where the scheduler is (ane-sweep help fleet)"
        )
    return address.checked(executor.address), certificates.folder(executor.certificates)


def reach(at: str, place: Path, timeout_s: float) -> None:
    """Return once a scheduler has accepted our certificate and shown its own. Raises Unreachable, Distrusted.

    A TLS 1.3 server refuses a certificate only after the handshake; a scheduler speaks first, so one byte tells.
    """
    context = security(place).get_connection_args("client")["ssl_context"]
    same = "every machine of a fleet needs a copy of the same folder"
    try:
        with (
            socket.create_connection(address.host_and_port(at), timeout_s) as plain,
            context.wrap_socket(plain) as safe,
        ):
            if not safe.recv(1):
                raise ConnectionResetError("the connection was closed")
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):  # a scheduler that is going down
        raise Unreachable(f"{at}: the scheduler there closed the connection") from None
    except ssl.SSLCertVerificationError as error:
        trust = f"the scheduler's certificate is not trusted by those in {place} ({error.verify_message})"
        raise Distrusted(f"{at}: {trust}; {same}") from None
    except ssl.SSLError as error:
        why = "what answers there does not speak TLS; `ane-sweep fleet scheduler` starts a scheduler that does"
        if "ALERT" in (alert := error.reason or ""):
            alert = alert.lower().replace("_", " ")
            why = f"the scheduler refuses the certificate in {place} ({alert}); {same}"
        raise Distrusted(f"{at}: {why}") from None
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise Unreachable(f"{at}: no scheduler answers there ({why}); `ane-sweep fleet scheduler` starts one") from None


def connected(at: str, place: Path, timeout_s: float = 5.0) -> Client:
    """Return a connected client of the scheduler. Raises Unreachable, Distrusted."""
    reach(at, place, timeout_s)
    options = {"timeout": timeout_s, "set_as_default": False, "heartbeat_interval": "2s"}
    try:
        client: Client = distributed().Client(at, security=security(place), **options)
    except (OSError, TimeoutError) as error:
        why = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise Unreachable(f"{at}: the scheduler there does not answer ({why})") from None
    return client

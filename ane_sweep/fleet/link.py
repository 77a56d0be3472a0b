"""Connections to a fleet's scheduler."""

import logging
import socket
import ssl
from pathlib import Path
from typing import Any

from ane_sweep.bridge.settings import ExecutorSettings
from ane_sweep.errors import ConfigError
from ane_sweep.fleet import address, certificates

# Dask's settings in every process of ours: no connection without TLS; the tasks of a lost worker fail at once; no stack
# sampling while something is timed; and no file is written that our own limits do not know.
CONFIG: dict[str, Any] = {
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
    """Raised if what answers at an address does not take our certificates, or shows none that we take."""


def distributed() -> Any:
    """Return the package `distributed`, configured for a fleet. Raises ConfigError if it is not installed."""
    try:
        import dask
        import distributed as found
    except ImportError:
        raise ConfigError("executor=dask needs distributed: pip install 'ane-sweep[fleet]'") from None
    dask.config.set(CONFIG)
    for name in ("distributed", "distributed.client", "distributed.core", "distributed.comm"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is said by us
    return found


def report_start(topic: str, key: str, machine: str) -> None:
    """Tell those who listen to a Dask topic that the current task has begun; do nothing outside of a worker's task."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    worker.log_event(topic, {"key": key, "name": worker.get_current_task(), "machine": machine})


def security(place: Path) -> Any:
    """Return what every connection of a fleet is made with. Raises ConfigError without certificates."""
    if problem := certificates.missing(place):
        raise ConfigError(problem)
    files = {name: str(place / name) for name in certificates.FILES}
    roles = {
        f"tls_{role}_{what}": files[name]
        for role in ("client", "scheduler", "worker")
        for what, name in (("cert", certificates.CERTIFICATE), ("key", certificates.KEY))
    }
    return distributed().Security(tls_ca_file=files[certificates.AUTHORITY], require_encryption=True, **roles)


def settings(executor: ExecutorSettings) -> tuple[str, Path]:
    """Return (address, folder of certificates) of a sweep's `executor`. Raises ConfigError."""
    if executor.address is None:
        raise ConfigError(
            "executor=dask: executor.address=tls://HOST:8786 says where the scheduler is (ane-sweep help fleet)"
        )
    return address.checked(executor.address), certificates.folder(executor.certificates)


def reach(at: str, place: Path, timeout_s: float) -> None:
    """Return once a scheduler has taken our certificate and shown its own. Raises Unreachable, Distrusted.

    A TLS 1.3 server refuses a certificate only after the handshake; a scheduler speaks first, so one byte tells.
    """
    context = security(place).get_connection_args("client")["ssl_context"]
    try:
        with (
            socket.create_connection(address.host_and_port(at), timeout_s) as plain,
            context.wrap_socket(plain) as safe,
        ):
            if not safe.recv(1):
                raise ConnectionResetError("the connection was closed")
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):  # a scheduler that is going down
        raise Unreachable(f"{at}: the scheduler there closed the connection") from None
    except ssl.SSLError as error:
        raise Distrusted(f"{at}: {_distrust(error, place)}") from None
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise Unreachable(f"{at}: no scheduler answers there ({why}); `ane-sweep fleet scheduler` starts one") from None


def _distrust(error: ssl.SSLError, place: Path) -> str:
    reason = error.reason or ""
    same = "every machine of a fleet needs a copy of the same folder"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the scheduler's certificate is not trusted by those in {place} ({error.verify_message}); {same}"
    if "ALERT" in reason:
        return f"the scheduler refuses the certificate in {place} ({reason.lower().replace('_', ' ')}); {same}"
    return "what answers there does not speak TLS; `ane-sweep fleet scheduler` starts a scheduler that does"


def connected(at: str, place: Path, timeout_s: float = 5.0) -> Any:
    """Return a client of the scheduler. Raises Unreachable, Distrusted."""
    reach(at, place, timeout_s)
    try:
        return distributed().Client(
            at, security=security(place), timeout=timeout_s, set_as_default=False, heartbeat_interval="2s"
        )
    except (OSError, TimeoutError) as error:
        why = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise Unreachable(f"{at}: the scheduler there does not answer ({why})") from None

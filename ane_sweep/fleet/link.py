"""The way to a fleet's scheduler."""

import logging
from pathlib import Path
from typing import Any

from ane_sweep.errors import ConfigError
from ane_sweep.fleet import address, certificates

# Of Dask, in whatever process of ours: encrypted or loopback; a lost worker costs what ran on it and is told at once;
# nothing samples stacks beside what is timed, and nothing is written to a disk that our own limits do not know.
CONFIG: dict[str, Any] = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": True,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.comm.timeouts.connect": "10s",
    "distributed.comm.retry.count": 0,
    "distributed.scheduler.worker-ttl": "60s",
}


class Unreachable(ConfigError):
    """Nobody answers at the scheduler's address."""


def distributed() -> Any:
    """The package, set as a fleet needs it. Raises ConfigError where it is not installed."""
    try:
        import dask
        import distributed as found
    except ImportError:
        raise ConfigError("executor=dask needs distributed: pip install 'ane-sweep[fleet]'") from None
    dask.config.set(CONFIG)
    for name in ("distributed", "distributed.client", "distributed.core", "distributed.comm"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is said by us
    return found


def security(at: str, place: Path) -> Any:
    """What a connection to that address is made with. Raises ConfigError without certificates."""
    if not address.is_tls(at):
        return None
    if said := certificates.missing(place):
        raise ConfigError(said)
    files = {name: str(place / name) for name in certificates.FILES}
    roles = {
        f"tls_{role}_{what}": files[name]
        for role in ("client", "scheduler", "worker")
        for what, name in (("cert", certificates.CERTIFICATE), ("key", certificates.KEY))
    }
    return distributed().Security(tls_ca_file=files[certificates.AUTHORITY], require_encryption=True, **roles)


def settings(executor: dict[str, Any], out: Path) -> tuple[str, Path]:
    """(address, folder of certificates) of a sweep's `executor`. Raises ConfigError."""
    if executor["address"] is None:
        raise ConfigError(
            "executor=dask: executor.address=tls://HOST:8786 says where the scheduler is (ane-sweep help fleet)"
        )
    return address.checked(executor["address"]), certificates.folder(executor["certificates"], out)


def connected(at: str, place: Path, timeout_s: float = 10.0) -> Any:
    """A client of the scheduler. Raises Unreachable."""
    found = distributed()
    safe = security(at, place)
    try:
        return found.Client(at, security=safe, timeout=timeout_s, set_as_default=False, heartbeat_interval="2s")
    except (OSError, TimeoutError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        tls = "; is it of other certificates?" if "SSL" in text or "TLS" in text.upper().replace("TLS://", "") else ""
        raise Unreachable(
            f"{at}: no scheduler answers there ({text[:160]}){tls}; `ane-sweep fleet scheduler` starts one"
        ) from None

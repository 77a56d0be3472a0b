"""What `ane-sweep fleet scheduler` and `fleet worker` start: Dask's own programs, with what makes them a fleet of ours."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ane_sweep.bridge.protocol import python_environment
from ane_sweep.errors import ConfigError
from ane_sweep.fleet import address, certificates, link
from ane_sweep.terminal import say

DASHBOARD = "127.0.0.1:8787"
_AGAIN_S = 3.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")


@dataclass(frozen=True)
class Service:
    """A program that is started, and started again when it ends by itself."""

    command: list[str]
    environment: dict[str, str]


def scheduler(at: str, place: Path) -> Service:
    """A scheduler that listens there; its dashboard is for this machine alone."""
    parts = urlsplit(address.checked(at))
    command = [sys.executable, "-P", "-m", "distributed.cli.dask_scheduler", *_tls(at, place)]
    command += ["--host", f"{parts.scheme}://{parts.hostname}", "--port", str(parts.port), "--no-jupyter"]
    return Service([*command, "--dashboard-address", DASHBOARD], _environment())


def worker(at: str, place: Path, name: str, resources: Mapping[str, float], scratch: Path) -> Service:
    """One worker with its nanny, which starts it again. It has as many threads as tasks may wait in it: their processes do
    the work."""
    address.checked(at)
    threads = int(resources["PREP"] + resources["TIME"]) + 1
    given = " ".join(f"{what}={amount:g}" for what, amount in resources.items())
    command = [sys.executable, "-P", "-m", "distributed.cli.dask_worker", at, *_tls(at, place), "--name", name]
    command += ["--nthreads", str(threads), "--nworkers", "1", "--memory-limit", "0", "--no-dashboard"]
    return Service([*command, "--resources", given, "--local-directory", str(scratch)], _environment())


def named(asked: str | None) -> str:
    """A worker's name. Raises ConfigError."""
    name = asked or re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname().partition(".")[0]) or "worker"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"--name {name}: expected letters, digits, _, . and -, as m4-a")
    return name


def run(service: Service, what: str) -> None:
    """Until Ctrl-C: what ends by itself, as a worker whose scheduler went away, is started again."""
    link.distributed()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs come with it ignored
    while True:
        process = subprocess.Popen(service.command, env=service.environment, stdin=subprocess.DEVNULL)
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        say(f"{what} ended by itself (exit code {code}); starting it again in {_AGAIN_S:g} s, until Ctrl-C")
        time.sleep(_AGAIN_S)


def _tls(at: str, place: Path) -> list[str]:
    if not address.is_tls(at):
        return []
    if said := certificates.missing(place):
        raise ConfigError(said)
    files = (certificates.AUTHORITY, certificates.CERTIFICATE, certificates.KEY)
    flags = ("--tls-ca-file", "--tls-cert", "--tls-key")
    return [word for flag, name in zip(flags, files) for word in (flag, str(place / name))]


def _environment() -> dict[str, str]:
    """With Dask set as a fleet needs it (link.CONFIG), however a user's own files set it."""
    told = {
        f"DASK_{key.upper().replace('.', '__').replace('-', '_')}": json.dumps(value)
        for key, value in link.CONFIG.items()
    }
    return {**os.environ, **python_environment(), **told, "DASK_LOGGING__DISTRIBUTED": "warning"}

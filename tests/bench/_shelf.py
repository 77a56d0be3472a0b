"""A fleet on this machine, to be looked at and to be hurt: a scheduler and workers with declared chips over TLS on loopback,
each a process with a cache of its own, and sweeps that use them.
"""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import psutil

from ane_sweep.bridge import protocol
from ane_sweep.bridge.record import Record, read_records
from ane_sweep.fleet import link, members

QUICK = (
    "model=tiny-gpt2", "weights=random", "seq_len=16", "latency.samples=3", "latency.warmup=1", "gate.wait_s=0", "gate.busy=1",
    "chips=[m4]", "tracking.enabled=false", "evidence=off",
)  # fmt: skip
WORKERS = {"m1-a": "m1", "m1-b": "m1", "m4-a": "m4", "m4-b": "m4"}
START_S = 120.0


def free_port() -> int:
    """A port that nothing listens at, below those that a system gives to whoever asks for any."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = random.randrange(10_000, 32_000)
            probe.bind(("127.0.0.1", port))
            return port


def until(what: str, found: Callable[[], object], seconds: float = START_S, log: Path | None = None) -> None:
    """Waits. Raises RuntimeError, which quotes the end of the log."""
    end = time.monotonic() + seconds
    while not found():
        if time.monotonic() > end:
            said = f": {log.read_text(errors='replace')[-2000:]}" if log else ""
            raise RuntimeError(f"{what}: not within {seconds:g} s{said}")
        time.sleep(0.05)


@dataclass
class Sweep:
    """A sweep that runs, in a process of its own."""

    process: subprocess.Popen[bytes]
    out: Path
    command: list[str]

    def end(self, seconds: float = 300) -> list[Record]:
        """Its records, once it has ended."""
        self.process.wait(seconds)
        runs = sorted((self.out / "runs").iterdir())
        return read_records(runs[-1].resolve())


@dataclass
class Shelf:
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    chips: dict[str, str] = field(default_factory=dict)
    environment: dict[str, dict[str, str]] = field(default_factory=dict)

    def __enter__(self) -> "Shelf":
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.address = f"tls://127.0.0.1:{self.port}"
        self._start("init", "fleet", "init", str(self.certificates)).wait()
        self.scheduler()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in reversed(self.processes.values()):  # the sweeps before what they would wait for
            with contextlib.suppress(psutil.NoSuchProcess):
                tree = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
                for one in tree:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.kill()
            process.wait()

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"

    def scheduler(self) -> None:
        self._start("scheduler", "fleet", "scheduler", self.address, "--certificates", str(self.certificates))

    def worker(self, name: str, chip: str, played: bool = False, **env: str) -> None:
        """`played`: a Mac, by coremltools' drop-in, as `tests/stand_in/` says; else this machine, which declares the chip."""
        self.chips[name] = chip
        words = ["fleet", "worker", self.address, "--certificates", str(self.certificates), "--name", name]
        if played:
            script = self.folder / f"{chip}.json"
            script.write_text(json.dumps(mac(chip)))
            env["ANE_SWEEP_STAND_IN"] = str(script)
        else:
            words += ["--chip", chip]
        self._start(name, *words, f"out={self.folder / name}", **env)

    def ready(self, *names: str) -> None:
        """Waits until these workers, and no others, are there."""

        def there() -> bool:
            try:
                with link.connected(self.address, self.certificates, 5) as client:
                    return [one.name for one in members.list_members(client)[0]] == sorted(names)
            except Exception:  # a scheduler that has not begun, or a worker that goes
                return False

        until(f"workers {', '.join(names)}", there)

    def sweep(self, *words: str, out: str = "out", address: str | None = None, wait_s: float = 30) -> Sweep:
        path = self.folder / out
        fleet = [
            "executor=dask", f"executor.address={address or self.address}", f"executor.certificates={self.certificates}",
            f"executor.wait_s={wait_s:g}", f"store={self.folder / 'store'}", f"out={path}",
        ]  # fmt: skip
        command = ["-m", *QUICK, *fleet, *words]
        return Sweep(self._start(f"sweep-{out}", *command), path, command)

    def again(self, sweep: Sweep) -> Sweep:
        """The same command once more."""
        return Sweep(self._start(f"sweep-{sweep.out.name}", *sweep.command), sweep.out, sweep.command)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def child(self, stage: str, worker: str | None = None) -> psutil.Process | None:
        """A running child that does a stage, of one worker or of any."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if any(f"/tasks/{stage}-" in word and word.startswith(str(self.folder / (worker or ""))) for word in words):
                return process
        return None

    def caught(self, stage: str, worker: str | None = None) -> psutil.Process:
        """The same, waited for."""
        until(f"a child of {stage}", lambda: self.child(stage, worker))
        found = self.child(stage, worker)
        return self.caught(stage, worker) if found is None else found

    def _start(self, role: str, *words: str, **env: str) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{role}.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ane_sweep", *words], stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, env={**protocol.python_environment(), **env}, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip
        self.processes[role] = process
        return process


def mac(chip: str) -> dict[str, object]:
    """What plays a Mac: an M1 takes 4 ms, an M4 two."""
    ms = 4 if chip == "m1" else 2
    return {
        "name": chip, "source": "constructed",
        "host": {"chip": f"Apple {chip.upper()}", "system": "Darwin", "machine": "arm64", "os_build": "24E248"},
        "answers": [{"on": "predict", "ms": [3 * ms, ms], "native_ms": ms}],
    }  # fmt: skip


def kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGKILL)


def worker_of(child: psutil.Process) -> psutil.Process:
    """The Dask worker whose child it is."""
    found = child.parent()
    assert found is not None
    return found


@contextlib.contextmanager
def proxy(port: int) -> Iterator[tuple[int, Callable[[], None]]]:
    """(a port of this machine behind which that one is, what cuts every connection through it)."""
    listening, live, stopped = socket.create_server(("127.0.0.1", 0)), list[socket.socket](), threading.Event()

    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        while not stopped.is_set():
            try:
                near, _ = listening.accept()
                far = socket.create_connection(("127.0.0.1", port))
            except OSError:
                continue
            live.extend((near, far))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    def cut() -> None:
        for one in live:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        live.clear()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1], cut
    finally:
        stopped.set()
        cut()
        listening.close()


def truth(records: list[Record], chips: dict[str, str], repeats: int) -> dict[str, int]:
    """What of the records is as it must be: cells, each once; whole; of one machine, the one asked for; timed so often."""
    keys = [record.cell_key for record in records]
    there = {f"{record.host.get('worker')}" for record in records if record.status.value in ("ok", "degraded")}
    assert there <= {*chips, "None"}
    fine = [record for record in records if record.status.value in ("ok", "degraded")]
    right = [one for one in fine if one.cell["machine"] in (None, one.host["worker"], chips[one.host["worker"]])]
    return {
        "cells": len(keys), "different": len(set(keys)), "done": len(fine), "right machine": len(right),
        "timed once": sum(len(one.timings) == repeats for one in fine),
    }  # fmt: skip


def clock_ahead(folder: Path, seconds: int) -> dict[str, str]:
    """The environment of a Python whose clock is that far off, in all its processes."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["import time", "_now, _now_ns = time.time, time.time_ns", f"time.time = lambda: _now() + {seconds}"]
    lines.append(f"time.time_ns = lambda: _now_ns() + {seconds} * 10**9")
    (folder / "sitecustomize.py").write_text("\n".join(lines) + "\n")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}

"""The machine as the probes see it: the doctor accesses it only here, so that tests can simulate any machine."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from ane_sweep import folders, memory_limits
from ane_sweep.bridge import protocol
from ane_sweep.machine import apple, host, tools, usb

HTTP_S = 5.0
CHILD_S = 120.0


@dataclass
class World:
    """This machine. `out`: the folder of outputs; `uri`: the tracker, None for sqlite in `out`."""

    out: Path
    uri: str | None = None
    system: str = sys.platform
    machine: str = platform.machine()
    python: tuple[int, ...] = sys.version_info[:3]
    _asked: dict[str, dict[str, Any] | str] = field(default_factory=dict)
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def requirements(self) -> list[str]:
        """Return the requirements in ane-sweep's own metadata, e.g. `coremltools==9.0`; none if it is not installed."""
        try:
            return metadata.requires("ane-sweep") or []
        except metadata.PackageNotFoundError:
            return []

    def version(self, package: str) -> str | None:
        return host.version_of(package)

    def ask(self, *command: str, timeout_s: float = 10.0) -> tools.Answer | None:
        """Return a system tool's answer, or None if there was none."""
        return tools.ask(*command, timeout_s=timeout_s)

    def child(self, what: str) -> dict[str, Any]:
        """Return the findings of runtimes/_probe.py, run once in a separate process. Raises RuntimeError with a sentence."""
        with self._asking:
            if what not in self._asked:
                self._asked[what] = _run_probe(what)
        found = self._asked[what]
        if isinstance(found, str):
            raise RuntimeError(found)
        return found

    def listen(self, command: list[str], seconds: float) -> tuple[str | None, str]:
        """Return (the first line that a tool printed within `seconds`, the reason if it printed none)."""
        from ane_sweep.machine.listener import Listener

        tool = Listener(command).start()
        deadline = time.monotonic() + seconds
        while not tool.stdout and tool.running() and time.monotonic() < deadline:
            time.sleep(0.01)
        tool.end()
        lines, said = tool.stdout.decode(errors="replace").splitlines(), tool.stderr.strip().splitlines()
        return (lines[0] if lines else None), tool.error or (said[-1] if said else f"said nothing in {seconds:.0f} s")

    def get(self, url: str) -> str:
        """Return the body of a URL. Raises OSError."""
        request = urllib.request.Request(url, headers={"User-Agent": "ane-sweep"})
        with urllib.request.urlopen(request, timeout=HTTP_S) as answer:
            content: bytes = answer.read(1 << 16)
        return content.decode("utf-8", "replace")

    def environ(self, name: str) -> str | None:
        return os.environ.get(name)

    def free_bytes(self) -> int:
        """Return the free space of the outputs' disk. Raises OSError if its folder cannot be written to."""
        folder = next(path for path in (self.out, *self.out.parents) if path.is_dir())
        with tempfile.NamedTemporaryFile(dir=folder):
            return shutil.disk_usage(folder).free

    def memory(self) -> tuple[int, int]:
        """Return (all, free) memory in bytes, of this host or the container that it is."""
        return memory_limits.host_bytes(), min(psutil.virtual_memory().available, memory_limits.free_bytes())

    def cached_models(self) -> int:
        """Return the number of models in the Hugging Face cache."""
        home = self.environ("HF_HOME") or Path(self.environ("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
        return len(list(folders.user_path(self.environ("HF_HUB_CACHE") or str(Path(home) / "hub")).glob("models--*")))

    def chip(self) -> str | None:
        return host.chip()

    def translated(self) -> bool:
        """Return True if Rosetta runs this Python."""
        return apple.translated()

    def xcode(self) -> str | None:
        return apple.xcode() if apple.is_mac() else None

    def connected(self) -> list[usb.Found]:
        return usb.connected() if apple.is_mac() else []

    def doubts(self) -> list[str]:
        """Return warnings about conditions that would disturb timings now."""
        from ane_sweep.runner import gate

        seen = gate.look(busy_limit=0.2)
        return [*seen.passing, *seen.lasting]


def _run_probe(what: str) -> dict[str, Any] | str:
    """Return the findings of a process, or the reason why there are none."""
    command = [sys.executable, "-P", "-m", "ane_sweep.worker.runtimes._probe", what]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=CHILD_S,
            env=protocol.python_environment(),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"gave no answer in {CHILD_S:.0f} s"
    lines, errors = done.stdout.strip().splitlines(), done.stderr.strip().splitlines()
    if done.returncode or not lines:
        return f"ended with {done.returncode}: {errors[-1] if errors else 'no message'}"
    try:
        findings: dict[str, Any] = json.loads(lines[-1])
        return findings
    except ValueError as error:
        return str(error)

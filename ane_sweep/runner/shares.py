"""What each machine of a fleet did in a run, and what was lost on it, for run.json: a run that is gone on with adds to it."""

import threading
from dataclasses import dataclass, field
from typing import Any

from ane_sweep.bridge import disk
from ane_sweep.store.runs import Run

NAME = "machines"


@dataclass
class Shares:
    """By worker. `seconds`: of the processes that did the work."""

    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, run: Run) -> "Shares":
        info = disk.read_json(run.folder / "run.json")
        return cls((info.get(NAME) if isinstance(info, dict) else None) or {})

    def did(self, name: str, host: dict[str, Any], seconds: float) -> None:
        with self._lock:
            said = self._said(name)
            said["tasks"] += 1
            said["seconds"] = round(said["seconds"] + seconds, 3)
            said["chip"] = host.get("declared_chip") or host.get("chip")
            said["os"] = " ".join(str(host[key]) for key in ("os_version", "os_build") if host.get(key))

    def lost(self, name: str | None) -> None:
        """A task that it had begun and did not bring to its end; None: nobody had."""
        if name is not None:
            with self._lock:
                self._said(name)["lost"] += 1

    def moved(self, name: str) -> None:
        """A program that another machine times in its stead."""
        with self._lock:
            self._said(name)["moved"] += 1

    def _said(self, name: str) -> dict[str, Any]:
        return self.machines.setdefault(
            name, {"chip": None, "os": "", "tasks": 0, "seconds": 0.0, "lost": 0, "moved": 0}
        )

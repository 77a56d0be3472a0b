"""What a sweep says to its fleet's scheduler, and hears: tasks out, ends in, each as a call for the one thread that decides."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

from ane_sweep.fleet import link, members
from ane_sweep.runner import errand

CONNECT_S = 5.0


@dataclass(frozen=True)
class Spot:
    """A worker that is there now: its name, what it has, and what is running on it."""

    name: str
    has: Mapping[str, float]

    def fits(self, needs: Mapping[str, float]) -> bool:
        return all(self.has.get(what, 0) >= amount for what, amount in needs.items())


class Wire:
    """One connection. What it hears goes into `heard` as calls: `began(key, name, machine)`, `ended(wire, name, key, future)`.

    A wire that is cut stays cut: the next one is another, and whatever an old one still says names it.
    """

    def __init__(
        self,
        at: str,
        certificates: Path,
        sweep: str,
        heard: "Queue[Callable[[], None]]",
        began: Callable[[str, str, str], None],
        ended: Callable[["Wire", str, str, Any], None],
    ):
        self.at, self.sweep, self._heard, self._ended = at, sweep, heard, ended
        self.client = link.connected(at, certificates, CONNECT_S)
        self._futures: dict[str, Any] = {}

        def event(said: Any) -> None:  # (when, {key, name, machine})
            heard.put(partial(began, said[1]["key"], said[1]["name"], said[1]["machine"]))

        self.client.subscribe_topic(errand.topic(sweep), event)

    def submit(self, key: str, name: str, text: str, needs: Mapping[str, float], priority: int) -> None:
        """Have one task done. `name`: unlike any other of any sweep, as Dask takes equal names for one task."""
        future = self.client.submit(
            errand.perform, text, key=name, resources=dict(needs), priority=priority, retries=0, pure=False
        )
        self._futures[key] = future
        future.add_done_callback(lambda done: self._heard.put(partial(self._ended, self, name, key, done)))

    def drop(self, key: str) -> None:
        """Nothing more is wanted of a task; what has not begun never does."""
        if (future := self._futures.pop(key, None)) is not None:
            future.cancel(reason="dropped")

    def forget(self, key: str) -> None:
        self._futures.pop(key, None)

    def spots(self) -> list[Spot]:
        """The workers. Raises OSError where the scheduler is gone."""
        if self.client.status != "running":
            raise OSError("the connection was closed")
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return [Spot(str(one["name"]), one["resources"]) for one in workers]

    def stop(self) -> None:
        """End what runs of this sweep on every worker that is heard from, and what waits. One that hangs is not waited for."""
        for key in list(self._futures):
            self.drop(key)
        silent_s = members.doing(self.client).silent_s
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        live = [at for at, one in workers.items() if silent_s.get(str(one["name"]), 0) < members.SILENT_S]
        if live:  # Dask takes no names for all of them
            self.client.run(errand.stop, self.sweep, workers=live, on_error="ignore")

    def close(self) -> None:
        self._futures.clear()
        self.client.close(timeout=1)

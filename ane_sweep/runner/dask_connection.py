"""A sweep's connection to the Dask scheduler of its fleet: it submits tasks, and turns events into calls for the deciding thread."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Queue

from ane_sweep.errors import ConfigError
from ane_sweep.fleet import link, members
from ane_sweep.fleet.link import Future
from ane_sweep.runner import remote_task

CONNECT_S = 5.0
RECONNECT_S = 1.0  # between two attempts
Calls = Queue[Callable[[], None]]


@dataclass(frozen=True)
class FleetWorker:
    """A connected worker, with its resources in the scheduler."""

    name: str
    resources: Mapping[str, float]

    def fits(self, needed: Mapping[str, float]) -> bool:
        return all(self.resources.get(label, 0) >= amount for label, amount in needed.items())


class SchedulerSession:
    """One session with the scheduler. After it is cut, `SchedulerConnection` opens another one.

    Events go into `calls`: `began(key, name, machine)` and `ended(session, name, key, future)`.
    """

    def __init__(
        self,
        address: str,
        certificates: Path,
        sweep: str,
        calls: Calls,
        began: Callable[[str, str, str], None],
        ended: Callable[["SchedulerSession", str, str, Future], None],
    ):
        self.address, self.sweep, self._calls, self._ended = address, sweep, calls, ended
        self.client = link.connected(address, certificates, CONNECT_S)
        self._futures: dict[str, Future] = {}

        def receive(event: tuple[float, dict[str, str]]) -> None:  # (time, {key, name, machine})
            _, values = event
            calls.put(partial(began, values["key"], values["name"], values["machine"]))

        self.client.subscribe_topic(remote_task.event_topic(sweep), receive)

    def submit(self, key: str, name: str, text: str, resources: Mapping[str, float], priority: int) -> None:
        """Submit a task. Its `name` must be unique among all sweeps, as Dask treats tasks of equal names as one."""
        future: Future = self.client.submit(
            remote_task.run_remote_task, text, key=name, resources=dict(resources), priority=priority, retries=0, pure=False
        )  # fmt: skip
        self._futures[key] = future
        future.add_done_callback(lambda done: self._calls.put(partial(self._ended, self, name, key, done)))

    def drop(self, key: str) -> None:
        """Cancel a task, so that it never begins if it has not yet."""
        if (future := self._futures.pop(key, None)) is not None:
            future.cancel(reason="dropped")

    def forget(self, key: str) -> None:
        """Release the future of a task that has ended."""
        self._futures.pop(key, None)

    def list_workers(self) -> list[FleetWorker]:
        """Return the connected workers. Raises OSError if the scheduler is gone."""
        if self.client.status != "running":
            raise OSError("the connection was closed")
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return [FleetWorker(str(worker["name"]), worker["resources"]) for worker in workers]

    def stop(self) -> None:
        """End this sweep's tasks, waiting or running, on every worker that answers. A silent worker is skipped."""
        for key in list(self._futures):
            self.drop(key)
        silent_s = members.read_activity(self.client).silent_s
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        live = [
            address for address, worker in workers.items() if silent_s.get(str(worker["name"]), 0) < members.SILENT_S
        ]
        if live:  # for Dask an empty list means all workers
            self.client.run(remote_task.stop_sweep, self.sweep, workers=live, on_error="ignore")

    def close(self) -> None:
        self._futures.clear()
        self.client.close(timeout=1)


@dataclass
class SchedulerConnection:
    """An open session with the scheduler, renewed if it is cut, and a list of the workers.

    dead   the reason why no session will follow, once the scheduler was away too long
    """

    connect: Callable[[], SchedulerSession]
    address: str
    wait_s: float
    workers: list[FleetWorker] = field(default_factory=list)
    dead: str | None = None
    _fits: dict[frozenset[tuple[str, float]], bool] = field(default_factory=dict)

    def open(self) -> None:
        """Open a session and list the workers. Raises ConfigError, and OSError if no scheduler answers."""
        self.session = self.connect()
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def reconnect(self, stop: threading.Event) -> None:
        """Open another session, trying for `wait_s` or until `stop`; set `dead` if that fails. Raises ConfigError."""
        self.close()
        began = time.monotonic()
        while not stop.is_set():
            try:
                return self.open()
            except Exception as error:  # Dask raises errors of many types while a scheduler starts
                if isinstance(error, ConfigError) and not isinstance(error, link.Unreachable):
                    raise
            if not stop.is_set() and time.monotonic() - began >= self.wait_s:
                self.dead = f"the scheduler at {self.address} was lost, and did not come back in {self.wait_s:g} s"
                return
            stop.wait(RECONNECT_S)

    def refresh(self) -> None:
        """Update the list of workers. Raises errors of many types if the scheduler is gone."""
        self.workers, self._fits = self.session.list_workers(), {}

    def has_fitting_worker(self, needed: Mapping[str, float]) -> bool:
        """Return True if a connected worker has these resources. Cached, as many tasks need the same ones."""
        key = frozenset(needed.items())
        if key not in self._fits:
            self._fits[key] = any(worker.fits(needed) for worker in self.workers)
        return self._fits[key]

    def drop(self, key: str) -> None:
        with contextlib.suppress(Exception):  # if the scheduler is gone, so is the task
            self.session.drop(key)

    def stop(self) -> None:
        with contextlib.suppress(Exception):
            self.session.stop()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.session.close()

"""One worker that answers for as long as it is asked. The other end of the line: worker/talk/channel.py."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ane_sweep.bridge.task import Limits, TaskRequest, TaskResult
from ane_sweep.errors import AneSweepError, StageError
from ane_sweep.machine.memory import memory_budget
from ane_sweep.runner import isolate


class Session:
    """A running worker of a stage that is talked to: `ready` is what it said of itself, `ask` asks it.

    The worker is started, waited for and reaped in a thread of its own, as it would die with the one that began it; so
    Ctrl-C reaches whoever reads. Leaving ends it: at once where an exception leaves.
    """

    def __init__(self, stage: str, params: dict[str, Any], inputs: dict[str, Path], folder: Path):
        (folder / "out").mkdir(parents=True)
        self.out, self._children = folder / "out", isolate.Children()
        ours, theirs = socket.socketpair()
        self._ours, self._lines = ours, ours.makefile("r", encoding="ascii")
        self._pool = ThreadPoolExecutor(1)
        task = TaskRequest(stage, stage, params, inputs, self.out, folder / "tmp", Limits(memory_budget(None)))
        self._ended: Future[TaskResult] = self._pool.submit(self._run, task, folder, theirs)
        self.ready: dict[str, Any] = {}

    def _run(self, task: TaskRequest, folder: Path, theirs: socket.socket) -> TaskResult:
        number = theirs.fileno()
        task = replace(task, params={**task.params, "channel": number})
        try:  # nobody looks at its memory meanwhile: it is timed
            return isolate.run_task(
                task, folder, timeout_s=None, watch_memory=False, env={"HF_HUB_OFFLINE": "1"},
                children=self._children, pass_fds=(number,),
            )  # fmt: skip
        finally:
            theirs.close()  # whoever reads our end sees that nothing more comes

    def __enter__(self) -> "Session":
        try:
            self.ready = self._first()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None and not issubclass(kind, AneSweepError):
            self._children.kill_all()
        self._ours.shutdown(socket.SHUT_WR)
        self._pool.shutdown(wait=True)
        self._ours.close()

    def ask(self, **request: Any) -> Iterator[dict[str, Any]]:
        """What is answered, event by event. Raises AneSweepError for what is refused, StageError where the worker ends."""
        try:
            self._ours.sendall((json.dumps(request) + "\n").encode("ascii"))
        except OSError:
            raise self._why() from None
        while (event := self._event())["event"] != "done":
            if event["event"] == "refused":
                raise AneSweepError(event["reason"])
            yield event

    def _first(self) -> dict[str, Any]:
        """Raises AneSweepError for what is refused before anything is asked."""
        if (event := self._event())["event"] == "refused":
            raise AneSweepError(event["reason"])
        return event

    def _event(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line.endswith("\n"):
            raise self._why()
        event: dict[str, Any] = json.loads(line)
        return event

    def _why(self) -> StageError:
        result = self._ended.result()
        return StageError(result.reason or f"the worker ended as {result.status} before it had answered")

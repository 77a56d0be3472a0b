"""A worker that answers requests until the session ends. The worker's end of the channel is worker/talk/channel.py."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TypedDict

from ane_sweep.bridge.task import Limits, TaskRequest, TaskResult
from ane_sweep.errors import AneSweepError, StageError
from ane_sweep.machine.memory import memory_budget
from ane_sweep.runner import children, isolate


class TokenTimes(TypedDict):
    """Milliseconds of a token."""

    tokenizer: float
    model: float
    sampling: float
    total: float


class WritingTimes(TypedDict):
    """Times of a text that a decoder wrote; `steady_ms` is the median after the first token."""

    tokens: int
    seconds: float
    first_ms: TokenTimes
    steady_ms: TokenTimes | None


class Event(TypedDict, total=False):
    """One message of a worker: `event` is its name, and each of worker/stages' generate and classify lists its own fields."""

    event: str
    reason: str
    tokenizer: str
    load_ms: float
    realised: dict[str, object]
    tokens: int
    sample: int
    text: str
    ids: list[int]
    pieces: list[str]
    stopped: str
    timing: WritingTimes
    number: int
    cut: bool
    tokenizer_ms: float
    model_ms: float
    label: str
    probability: float
    count: int
    distinct: int
    total_s: float
    per_s: float
    first_ms: float
    median_ms: float
    p90_ms: float
    tokenizer_median_ms: float
    idle_s: float
    after_idle_ms: float | None


class Session:
    """A running worker: `ready` is its first message, `ask` sends a request.

    A separate thread starts, awaits and reaps the worker, because the worker dies with the thread that started it;
    Ctrl-C then reaches the reading thread. Leaving the session ends the worker; an exception ends it at once.
    """

    def __init__(self, stage: str, params: dict[str, object], inputs: dict[str, Path], folder: Path):
        (folder / "out").mkdir(parents=True)
        self.out, self._children = folder / "out", children.Children()
        ours, theirs = socket.socketpair()
        self._ours, self._lines = ours, ours.makefile("r", encoding="ascii")
        self._pool = ThreadPoolExecutor(1)
        task = TaskRequest(stage, stage, params, inputs, self.out, folder / "tmp", Limits(memory_budget(None)))
        self._ended: Future[TaskResult] = self._pool.submit(self._run, task, folder, theirs)
        self.ready = Event()

    def _run(self, task: TaskRequest, folder: Path, theirs: socket.socket) -> TaskResult:
        number = theirs.fileno()
        task = replace(task, params={**task.params, "channel": number})
        try:  # its memory is not watched, as the worker is timed
            return isolate.run_task(
                task, folder, timeout_s=None, watch_memory=False, env={"HF_HUB_OFFLINE": "1"},
                children=self._children, pass_fds=(number,),
            )  # fmt: skip
        finally:
            theirs.close()  # the reader of our end sees the end of the file

    def __enter__(self) -> "Session":
        try:
            self.ready = self._read_answer()
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

    def ask(self, **request: object) -> Iterator[Event]:
        """Send a request and yield the events of its answer. Raises AneSweepError if refused, StageError if the worker ends."""
        try:
            self._ours.sendall((json.dumps(request) + "\n").encode("ascii"))
        except OSError:
            raise self._explain_end() from None
        while (event := self._read_answer())["event"] != "done":
            yield event

    def _read_answer(self) -> Event:
        """Read one event. Raises AneSweepError for a refusal, StageError if the worker has ended."""
        line = self._lines.readline()
        if not line.endswith("\n"):
            raise self._explain_end()
        event: Event = json.loads(line)
        if event["event"] == "refused":
            raise AneSweepError(event["reason"])
        return event

    def _explain_end(self) -> StageError:
        result = self._ended.result()
        return StageError(result.reason or f"the worker ended as {result.status} before it had answered")

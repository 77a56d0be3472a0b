"""The two files between planner and worker, as types: the request of a task (task.json) and its result (result.json).

    task.json    {"schema", "stage", "key", "params", "inputs": {role: path}, "out", "tmp", "result",
                  "limits": {"memory_bytes": int | null}, "threads": int | null}
    result.json  {"schema", "stage", "key", "status", "reason", "seconds", "peak_bytes", "exit",
                  "metrics": [...], "realised": {...}, "facts": {...}, "doubts": [sentence, ...]}

In result.json `timing` and `placement` are among the facts.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from ane_sweep.bridge import conversion, disk
from ane_sweep.bridge.figures import Count, Metric, NotNegative, Placement, Timing, as_plain
from ane_sweep.errors import End

SCHEMA: Literal[1] = 1
AUTO_REPEATS = 4  # processes of latency.repeats=auto: the fewest that find most differences of 30 % (docs/timings.md)
CHEAP_S = 30.0  # latency.repeats=auto: a program whose first process takes longer is timed in that one alone


@dataclass(frozen=True)
class Limits:
    memory_bytes: int | None = None


@dataclass(frozen=True)
class TaskRequest:
    """The request to a worker.

    params   what the stage is told, as JSON values; `inputs`: role -> folder or file of an upstream artifact
    out      where the stage leaves its files; `tmp` is made before and deleted after; `result`: where result.json goes
    threads  how many the libraries may use, None for as many as they like
    """

    stage: str
    key: str
    params: dict[str, Any]
    inputs: dict[str, Path]
    out: Path
    tmp: Path
    limits: Limits = Limits()
    threads: int | None = None
    result: Path = Path()
    schema: Literal[1] = SCHEMA

    def write(self, path: Path) -> None:
        disk.write_json(path, msgspec.to_builtins(self, enc_hook=os.fspath))

    @classmethod
    def read(cls, path: Path) -> "TaskRequest":
        # a path's bytes that are no text are lone surrogates: msgspec's own reader refuses those
        plain = json.loads(path.read_bytes())
        return conversion.convert(plain, cls, dec_hook=lambda kind, text: kind(text))


@dataclass
class TaskResult:
    """The result of a task.

    status   `unavailable`: this host cannot do it. `reason` is one sentence; None when ok
    seconds  wall time of the whole process; `peak_bytes` its peak resident memory; `exit` its exit code or the name of the
             signal that ended it. None if unknown, as for an artifact from the cache
    realised, facts  JSON values: what really happened, for the record, and what later tasks and the planner may want
    doubts   sentences
    """

    stage: str
    key: str
    status: End
    reason: str | None = None
    metrics: list[Metric] = field(default_factory=list)
    timing: Timing | None = None
    placement: list[Placement] = field(default_factory=list)
    realised: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    seconds: NotNegative | None = None
    peak_bytes: Count | None = None
    exit: int | str | None = None
    stderr_tail: str | None = None
    schema: Literal[1] = SCHEMA

    def to_plain(self) -> dict[str, Any]:
        """Return the result as JSON values, in the form of result.json."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        timing = {} if self.timing is None else {"timing": as_plain(self.timing)}
        placement = {"placement": [as_plain(entry) for entry in self.placement]} if self.placement else {}
        plain |= {"facts": {**self.facts, **timing, **placement}}
        unwritten = ("timing", "placement", *(("stderr_tail",) if self.stderr_tail is None else ()))
        return {name: value for name, value in plain.items() if name not in unwritten}

    @classmethod
    def from_plain(cls, plain: Any) -> "TaskResult":
        """Return the result of JSON values, as the inverse of `to_plain`. Raises ValueError for values of another form."""
        if not isinstance(plain, dict) or not isinstance(plain.get("facts", {}), dict):
            raise ValueError("it is no result")
        facts = dict(plain.get("facts", {}))
        lifted = {"timing": facts.pop("timing", None), "placement": facts.pop("placement", [])}
        return conversion.convert({**plain, **lifted, "facts": facts}, cls)

    def write(self, path: Path) -> None:
        disk.write_json(path, self.to_plain())

    @classmethod
    def read(cls, path: Path) -> "TaskResult | None":
        """Return the result in a file, or None if the file is absent or has another form."""
        plain = disk.read_json(path)
        try:
            return None if plain is None else cls.from_plain(plain)
        except ValueError:
            return None


@dataclass
class Task:
    """One task, which runs as one process. `inputs` maps a role to an upstream task's key; `folders` to a folder that already exists."""

    stage: str
    key: str
    params: dict[str, Any]
    inputs: dict[str, str]
    folders: dict[str, Path]
    limits: dict[str, Any]
    label: str
    work: int
    memory_bytes: int
    disk_bytes: int
    seconds: float | None
    alone: bool = False
    unavailable: str | None = None
    round: int = 0  # of tasks that run alone: all of one round before any of the next
    after: tuple[str, ...] = ()  # tasks that must have ended well, though nothing of theirs is used: in no key
    more_of: str = ""  # of latency.repeats=auto: the first timing, which decides whether this one is taken; in no key
    place: str = ""  # with a fleet, of tasks that depend on the machine: the label of those that may do it (place.py)
    varies: frozenset[str] = frozenset()  # of the axes that vary, those that make a difference to it

    def also_for(self, other: "Task") -> None:
        """Merge the same task of another cell into this one: the widest limits hold, and an explicit request wins."""
        for limit, value in other.limits.items():
            self.limits[limit] = None if None in (self.limits[limit], value) else max(self.limits[limit], value)
        if not other.more_of:
            self.more_of, self.seconds = "", other.seconds

    def memory_limit(self, budget: int) -> int:
        """Return the bytes that its process may use: its own limit, or the budget that all parallel tasks share."""
        gib = self.limits["memory_gib"]
        return budget if gib is None else int(gib * 2**30)

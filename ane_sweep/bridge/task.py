"""The two files between planner and worker as types: a task's request (task.json) and its result (result.json).

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
from typing import Any, Final, Literal, TypedDict

import msgspec

from ane_sweep.bridge import conversion, disk
from ane_sweep.bridge.figures import Metric, NotNegative, Timing, as_plain
from ane_sweep.errors import End
from ane_sweep.placement.types import Count, Placement

SCHEMA: Literal[1] = 1
DRAWN: Final = "random_weights"  # key of `realised`: a sentence about weights that a module's own code draws
AUTO_REPEATS = 4  # processes of latency.repeats=auto: the fewest that find most differences of 30 % (docs/runtimes.md)
CHEAP_S = 30.0  # latency.repeats=auto: a program whose first process takes longer is timed in that one alone


class RewriteOutcome(TypedDict):
    """A rewrite that matched: the number of its places, the ops that some of them change, and the reason for the decision."""

    name: str
    places: Count
    at: list[str]
    reason: str


class RewritesDone(TypedDict):
    """The rewrites tried on a program, judged for a chip; `unmatched` are names of those that matched no op."""

    chip: str
    applied: list[RewriteOutcome]
    refused: list[RewriteOutcome]
    unmatched: list[str]


class Realised(TypedDict, total=False):
    """The facts of a run, in contrast to its request: keys that readers of records rely on. Stages and runtimes may add
    others.

    runtime, compute_units, chunks  the actual values, None if none ran; `numerics`, `device`: the runtime's arithmetic
                    and hardware
    texts, inputs   source of the inputs; `inputs` describes synthetic ones; `texts_digest` is the digest of all texts
    cut, cut_behind, chunk_bytes    a sentence about an uneven cut; the ops and sizes of cuts that the user chose
    scored          "uncut": scores are those of the program before it was cut, which computes the same bits
    rewrites        the rewrites of the converted program that were applied and refused
    grown_blocks    number of blocks that were copied rather than converted (worker/grow/)
    tools           distributions and versions that made a program which is no Core ML package
    latency_task, cells_sharing_timing  key of the first task that timed the cell, and how many cells have it
    unstable, psnr_warning  sentences
    verdict         agrees, disagrees or unavailable: whether Core ML ran on the requested units
    observed        cpu, gpu, ane or None; `verdict_reasons`: sentences
    evidence        source -> `measured` or the reason why not; `predictions`, `findings`: of the system log
                    (stages/evidence.py)
    planned_costs, costs    each op's share of the cost according to Core ML's planner, and to a profile
    """

    runtime: str | None
    compute_units: str | None
    chunks: Count | str | None
    numerics: str | None
    device: str | None
    texts: str | None
    texts_digest: str | None
    texts_count: Count | None
    inputs: str | None
    random_weights: str | None
    cut: str | None
    scored: str | None
    rewrites: RewritesDone | None
    grown_blocks: Count | None
    tools: str | None
    function: str | None
    latency_task: str | None
    cells_sharing_timing: Count | None
    unstable: str | None
    psnr_warning: str | None
    machine: str | None
    stand_in: str | None
    verdict: str | None
    observed: str | None
    verdict_reasons: list[str] | None
    evidence: dict[str, object] | None


class EvidenceFacts(TypedDict, total=False):
    """An evidence pass's figures for the verdict: power by engine, system log findings, sources it could not watch."""

    power: dict[str, dict[str, float]]
    findings: list[dict[str, object]]
    missing: list[str]


class MeasuredOn(TypedDict):
    """The machine of a fleet that ran a task."""

    host: dict[str, Any]
    toolchain: dict[str, str | None]


class Facts(TypedDict, total=False):
    """Facts of a task for later steps: keys that planner, runner and results read. Stages may add others.

    folder       the folder of the checkpoint, from stage fetch
    weights      the digest of the weights that the code of a user's module made in this process
    """

    folder: str | None
    weights: str
    evidence: EvidenceFacts
    measured_on: MeasuredOn


@dataclass(frozen=True)
class Limits:
    memory_bytes: int | None = None


@dataclass(frozen=True)
class TaskRequest:
    """The request to a worker.

    params   the stage's parameters as JSON values; `inputs`: role -> folder or file of an upstream artifact
    out      the folder for the stage's files; `tmp` is a folder made before and deleted after; `result`: path of
             result.json
    threads  number of threads for the libraries; None: no limit
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
        return conversion.convert(json.loads(path.read_bytes()), cls, dec_hook=lambda kind, text: kind(text))


@dataclass
class TaskResult:
    """The result of a task.

    status   `unavailable`: this host cannot run it. `reason` is one sentence, or None if ok
    seconds  wall time of the whole process; `peak_bytes` its peak resident memory; `exit` its exit code or the name of the
             signal that ended it. These three are None if unknown, as for an artifact from the cache
    doubts   warnings, one sentence each
    """

    stage: str
    key: str
    status: End
    reason: str | None = None
    metrics: list[Metric] = field(default_factory=list)
    timing: Timing | None = None
    placement: list[Placement] = field(default_factory=list)
    realised: Realised = field(default_factory=Realised)
    facts: Facts = field(default_factory=Facts)
    doubts: list[str] = field(default_factory=list)
    seconds: NotNegative | None = None
    peak_bytes: Count | None = None
    exit: int | str | None = None
    stderr_tail: str | None = None
    schema: Literal[1] = SCHEMA

    def to_plain(self) -> dict[str, object]:
        """Return the result as JSON values, in the form of result.json."""
        plain: dict[str, object] = msgspec.to_builtins(self)
        timing = {} if self.timing is None else {"timing": as_plain(self.timing)}
        placement = {"placement": [as_plain(entry) for entry in self.placement]} if self.placement else {}
        plain |= {"facts": {**self.facts, **timing, **placement}}
        unwritten = ("timing", "placement", *(("stderr_tail",) if self.stderr_tail is None else ()))
        return {name: value for name, value in plain.items() if name not in unwritten}

    @classmethod
    def from_plain(cls, plain: object) -> "TaskResult":
        """Build the result from JSON values that `to_plain` returned. Raises ValueError for values of another form."""
        if not isinstance(plain, dict) or not isinstance(plain.get("facts", {}), dict):
            raise ValueError("it is no result")
        facts = dict(plain.get("facts", {}))
        lifted = {"timing": facts.pop("timing", None), "placement": facts.pop("placement", [])}
        result = conversion.convert({**plain, **lifted, "facts": facts}, cls)
        result.realised = conversion.check(plain.get("realised", {}), Realised)
        result.facts = conversion.check(facts, Facts)
        return result

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
    limits: dict[str, float | None]
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
    place: str = ""  # with a fleet, of tasks that depend on the machine: the label of those that may do it (plan.Place)
    varies: frozenset[str] = frozenset()  # of the axes that vary, those that make a difference to it
    sort: str = ""  # the host, and a user's own model: recorded durations of the same sort scale the rule
    rule_s: float = 0.0  # seconds by planner/durations.py, on the host that it was fitted on

    def also_for(self, other: "Task") -> None:
        """Merge the same task of another cell into this one: the widest limits hold, and an explicit request wins."""
        for limit, value in other.limits.items():
            own = self.limits[limit]
            self.limits[limit] = None if own is None or value is None else max(own, value)
        if not other.more_of:
            self.more_of, self.seconds = "", other.seconds

    def memory_limit(self, budget: int) -> int:
        """Return the bytes that its process may use: its own limit, or the budget that all parallel tasks share."""
        gib = self.limits["memory_gib"]
        return budget if gib is None else int(gib * 2**30)

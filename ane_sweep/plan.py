"""From cells to tasks: a DAG in which cells that need the same thing share one task. Pure functions.

What enters each task's key is the sharing: see `tasks.py`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ane_sweep import checks, chunking, estimates
from ane_sweep.cell import Cell, digest
from ane_sweep.checkpoints import Source
from ane_sweep.errors import ConfigError
from ane_sweep.host import TOOLS
from ane_sweep.tasks import Costs, Shared, Task, tasks_of


@dataclass
class Plan:
    """Everything that would happen: tasks in an order that respects their inputs, and each cell's own tasks.

    beside  of each cell, units -> the task that times its program under them, for its verdict alone
    """

    cells: list[Cell]
    axes: list[str]
    tasks: dict[str, Task] = field(default_factory=dict)
    chains: dict[str, list[str]] = field(default_factory=dict)
    beside: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """What makes two sweeps the same sweep: the same cells over the same tasks."""
        return digest([self.chains, self.refused])

    def needs(self, key: str) -> list[str]:
        """Keys of all the tasks that a cell's record is made of; none for a refused cell."""
        return [*self.chains.get(key, ()), *self.beside.get(key, {}).values()]

    def only(self, keys: Collection[str]) -> "Plan":
        """The part of the plan that some of its cells need."""
        chains = {key: chain for key, chain in self.chains.items() if key in keys}
        needed = {task for key in chains for task in self.needs(key)}
        return replace(
            self,
            cells=[cell for cell in self.cells if cell.key in keys],
            tasks={key: task for key, task in self.tasks.items() if key in needed},
            chains=chains,
            beside={key: self.beside[key] for key in chains},
            refused={key: reason for key, reason in self.refused.items() if key in keys},
        )


def make_plan(
    cells: Sequence[Cell],
    axes: list[str],
    sources: Mapping[str, Source],
    *,
    host: str,
    toolchain: Mapping[str, str | None],
    predict_for: Sequence[str] = (),
    history: estimates.History | None = None,
    notes: Sequence[str] = (),
) -> Plan:
    """Plan every cell. Raises ConfigError for unknown families and runtimes; impossible combinations are `refused`.

    sources   cell key -> its settled weights
    host      digest of the machine that will time; enters the keys of what depends on it
    predict_for  the chips to predict placement for; more of them cost no conversion and no timing
    """
    tools = {name: toolchain.get(name) for name in TOOLS}
    shared = Shared(axes, host, tools, list(predict_for), Costs(history or {}))
    plan = Plan(list(cells), axes, sources=dict(sources), notes=list(notes))
    problems = dict.fromkeys(problem for cell in cells for problem in checks.unknown_names(cell))
    problems |= dict.fromkeys(checks.unknown_chips(predict_for))
    if problems:
        raise ConfigError(list(problems))
    plan.notes += checks.notes(plan.cells, axes, plan.sources.values())
    for cell in cells:
        runtime = checks.resolved_runtime(cell)
        source = sources[cell.key]
        if reason := checks.refusal(cell, source, runtime):
            plan.refused[cell.key] = reason
            continue
        chain = tasks_of(cell, source, runtime, shared)
        for task in (*chain.tasks, *chain.beside.values()):
            plan.tasks.setdefault(task.key, task).also_for(task)
        plan.chains[cell.key] = [task.key for task in chain.tasks]
        plan.beside[cell.key] = {units: task.key for units, task in chain.beside.items()}
    plan.notes += chunking.notes((cell, sources[cell.key]) for cell in cells if cell.key in plan.chains)
    return plan

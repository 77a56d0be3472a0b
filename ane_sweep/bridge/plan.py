"""A plan: the tasks of a matrix, and the tasks that each cell needs."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ane_sweep.bridge.cell import Cell, digest
from ane_sweep.bridge.place import Place
from ane_sweep.bridge.source import Source
from ane_sweep.bridge.task import Task


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

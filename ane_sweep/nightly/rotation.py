"""The choice of tonight's cells: the most informative first, as many as the budget allows; the rest come first the next
night.

The rule, in this order: cells whose last comparison showed a regression (is it real?), cells that were never measured,
then those that were measured longest ago. Within one rank, the order of the matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ane_sweep.bridge import disk, kept
from ane_sweep.bridge.plan import Plan, expected_seconds
from ane_sweep.bridge.record import Record, Status
from ane_sweep.bridge.task import Task
from ane_sweep.store import runs

FILL = 0.85  # of the budget is filled by estimates: they are medians, and the last task may end late


@dataclass(frozen=True)
class StoredState:
    """The content of state.json."""

    measured: dict[str, str]
    again: list[str]


@dataclass
class Rotation:
    """The state in outputs/nightly/state.json: the last run that measured each cell, and the cells to measure again.

    order   run -> its rank among the existing runs, oldest first
    """

    path: Path
    measured: dict[str, str] = field(default_factory=dict)
    again: list[str] = field(default_factory=list)
    order: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, out: Path) -> "Rotation":
        path = out / "nightly" / "state.json"
        stored = kept.read(path, StoredState, "every cell counts as never measured") or StoredState({}, [])
        order = {run.stamp: place for place, run in enumerate(reversed(runs.list_runs(out)))}
        return cls(path, stored.measured, stored.again, order)

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        disk.write_json(self.path, vars(StoredState(self.measured, self.again)))

    def rank(self, key: str) -> tuple[int, int, str]:
        """Return a sort key: the cell with the smallest one is measured first; a deleted run counts as older than existing ones."""
        if key in self.again:
            return 0, 0, ""
        stamp = self.measured.get(key)
        return (1, 0, "") if stamp is None else (2, self.order.get(stamp, -1), stamp)

    def note(self, stamp: str, records: list[Record], again: list[str]) -> None:
        """Add a night: the cells that it measured, and those to measure again."""
        seen = [record.cell_key for record in records if record.status is not Status.SKIPPED]
        self.measured |= dict.fromkeys(seen, stamp)
        self.again = [key for key in dict.fromkeys([*self.again, *again]) if key in again or key not in seen]


def choose(
    plan: Plan, rotation: Rotation, budget_minutes: float | None, is_cached: Callable[[Task], bool]
) -> tuple[Plan, list[str]]:
    """Return (tonight's part of the plan, labels of the cells left for the next night). At least one cell is chosen."""
    if budget_minutes is None:
        return plan, []
    order = sorted(plan.cells, key=lambda cell: rotation.rank(cell.key))
    chosen: set[str] = set()
    counted: set[str] = set()
    spent, full = 0.0, False
    for cell in order:
        fresh = [key for key in plan.list_tasks(cell.key) if key not in counted]
        cost = sum(expected_seconds(plan.tasks[key]) for key in fresh if not is_cached(plan.tasks[key]))
        full = full or (bool(chosen & plan.chains.keys()) and spent + cost > FILL * 60 * budget_minutes)
        if full and fresh:
            continue
        chosen.add(cell.key)  # a refused cell, or one whose every task another one needs too, costs nothing
        counted.update(fresh)
        spent += cost
    return plan.only(chosen), [cell.label(plan.axes or ["model"]) for cell in order if cell.key not in chosen]

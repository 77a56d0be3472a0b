"""A search over free values: Optuna draws cells, which are planned, prepared, dropped, scored and timed like any other.
If estimates exist, cells are drawn in batches and timed in the order of their estimates.
"""

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ane_sweep.bridge.cell import Cell, digest
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.record import Record
from ane_sweep.errors import ConfigError
from ane_sweep.planner.space import Space
from ane_sweep.results import search_log
from ane_sweep.search.order import Order, Predicted
from ane_sweep.search.search import HOPELESS, NOT_WRONG, PHASES, SETTLED, Search
from ane_sweep.search.study import Drawn, Study
from ane_sweep.terminal import count

if TYPE_CHECKING:
    import optuna

BATCH = 8  # cells that are prepared before the first of them is timed, where an estimate orders them
REFUSED = 100  # one after the other, and no cell is left that is worth asking for
TRIALS = 50  # where there is no end of cells and nobody says how many


@dataclass
class Asking:
    """A drawn cell: Optuna's trial and the values in it."""

    trial: "optuna.Trial"
    drawn: Drawn


@dataclass(kw_only=True)
class Free(Search):
    """A search over free values. `planned` plans all cells drawn so far, in their order."""

    space: Space
    planned: Callable[[list[Cell]], Plan]
    asked: dict[str, Asking] = field(default_factory=dict)
    by_drawing: set[str] = field(default_factory=set)
    same: dict[str, str] = field(default_factory=dict)  # digest of a program -> the cell that had it first
    predicted: Predicted | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.how = "as Optuna asked"
        self.study = Study(
            self.space.dimensions, len(self.goal.objectives), self.settings.search.seed, self.run.folder, str(self.goal)
        )
        self.chance = random.Random(self.settings.search.seed)
        self.cells = {cell.key: cell for cell in self.plan.cells}

    def go(self) -> list[Record]:
        """Run the search and return the records of all cells that were drawn."""
        while (why := self._reason_to_stop()) is None:
            before = len(self.asked)
            keys = self._draw(BATCH if self.predicted else 1)
            if len(self.asked) == before:
                break
            self._try(keys)
        self.never |= dict.fromkeys(self.open(), why or "its turn has not come")
        return self.records(self.plan)

    def summary(self, cells: int) -> str:
        timed = (
            f"{len(self.trials)} of them timed" if self.times or self.trials else "by what is known without a timing"
        )
        return f"{count(len(self.tried), 'cell')} tried, {timed}, {self.how}"

    def words(self, key: str) -> list[str]:
        """Return the words of a sweep of one drawn cell alone, without those that bound the search."""
        if key not in self.asked:
            return []
        bounds = ("search.", "resume=", "budget_minutes=")
        return [word for word in self.space.trial(self.asked[key].drawn) if not word.startswith(bounds)]

    @property
    def most(self) -> float:
        """Return the maximal number of cells that the search may try."""
        given = self.settings.search.trials
        if given is None and self.until is None and self.space.count() > TRIALS:
            return TRIALS
        return math.inf if given is None else given

    def _reason_to_stop(self) -> str | None:
        if self._count_left() <= 0:
            return f"search.trials={self.most} were spent"
        latest = self.tried[-REFUSED:]
        if len(latest) == REFUSED and all(key in self.plan.refused for key in latest):
            return f"{REFUSED} cells one after the other were refused"
        return self._stopped()

    def _count_left(self) -> float:
        """Return how many more cells may be tried; refused cells do not count."""
        return self.most - sum(key not in self.plan.refused for key in self.asked)

    def _ended(self) -> str | None:
        return self._stopped()

    def _draw(self, size: int) -> list[str]:
        """Draw and plan up to `size` new cells and return their keys; fewer if nothing new is left."""
        drawn: list[str] = []
        for _ in range(int(min(size, self._count_left()))):
            if (asking := self._next()) is None:
                break
            cell = self.space.cell(asking.drawn)
            self.cells[cell.key] = cell
            self.asked[cell.key] = asking
            self.tried.append(cell.key)
            self.values[cell.key] = self.space.values(asking.drawn)
            self.labels[cell.key] = " ".join(f"{name}={one}" for name, one in self.values[cell.key].items())
            drawn.append(cell.key)
        self.plan = self.planned(list(self.cells.values()))
        for key in drawn:
            if reason := self.plan.refused.get(key):
                self.study.tell(self.asked[key].trial, None, {"refused": 1.0})
                self.never[key] = reason
        return [key for key in drawn if key in self.plan.chains]

    def _next(self) -> Asking | None:
        """Return the next cell to try: the start, then Optuna's choice, then any untried cell if Optuna repeats itself;
        None at the end.
        """
        if not self.asked and not self.study.earlier:
            self._is_new(self.space.start)
            return Asking(self.study.insist(self.space.start), self.space.start)
        if asked := self.study.ask(self._is_new):
            return Asking(*asked)
        if self.space.count() < math.inf:
            left = next((one for one in self.space.all() if self._is_new(one)), None)
        else:
            left = next((one for one in (self.space.any(self.chance) for _ in range(1000)) if self._is_new(one)), None)
        return None if left is None else Asking(self.study.insist(left), left)

    def _is_new(self, drawn: Drawn) -> bool:
        """Return True if a drawing is a new cell. Each drawing is composed only once."""
        mark = digest(self.space.values(drawn))
        if mark in self.by_drawing:
            return False
        self.by_drawing.add(mark)
        try:
            return self.space.cell(drawn).key not in self.asked
        except ConfigError:
            return False

    def _try(self, keys: list[str]) -> None:
        """Prepare, score and time the cells, dropping some after each step, and report each result to Optuna."""
        for wanted in PHASES:
            self._perform(self._part([key for key in keys if key not in self.never], wanted))
            self._settle_default(keys)
            self._drop()
            self._drop_twins(keys)
        known = self.known_records([key for key in keys if key not in self.never])
        untimed = {key: record for key, record in known.items() if self.times and self.goal.untimed(record)}
        self.never |= dict.fromkeys(known.keys() - untimed.keys(), SETTLED)
        if untimed:
            self._time(self._order(untimed))
        for key in keys:
            self._tell(key)
        self.goal = replace(self.goal, by_default=False)  # the first cells settle it

    def _order(self, known: dict[str, Record]) -> Order:
        order = super()._order(known)
        if isinstance(order, Predicted):
            if self.predicted is not None:
                order.slack, order.seen = self.predicted.slack, self.predicted.seen
            self.predicted = order
            self.how = f"{BATCH} at a time as Optuna asked, these {self.how}"
        return order

    def _unpredicted(self, known: dict[str, Record]) -> Order:
        return _InTurn()

    def _drop_twins(self, keys: list[str]) -> None:
        """Drop cells whose cuts are at the same places as another cell's: the program is the same and is not timed twice."""
        for key, record in self.known_records([key for key in keys if key not in self.never]).items():
            if behind := record.realised.get("cut_behind"):
                cell = {name: value for name, value in record.cell.items() if name != "cuts"}
                other = self.same.setdefault(digest([cell, behind]), key)
                if other != key:
                    self.never[key] = search_log.TWIN + self.labels[other]

    def _tell(self, key: str) -> None:
        record = self.known_records([key])[key]
        excess = self.goal.excess(record)
        wrong = record.status not in NOT_WRONG
        self.study.tell(
            self.asked[key].trial,
            None if wrong else self.goal.gains(record),
            {} if wrong else excess,
            hopeless=self.never.get(key) == HOPELESS,
        )


class _InTurn:
    """The order in which cells were drawn, for searches without estimates."""

    def next(self, open_: Iterable[str]) -> str | None:
        return next(iter(open_), None)

    def tell(self, key: str, value: float | None, gains: object, excess: object = None) -> None: ...

"""The order in which cells are timed: by their estimates if something predicts them, else by Optuna's sampler.

Both choose the next key among the open ones and take the result (`excess`: limit -> share by which it is violated).
`Predicted` also tells when no open cell can win any more.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ane_sweep.planner.space import Choice
from ane_sweep.results.ranking import beats
from ane_sweep.search.study import Drawn, Study

if TYPE_CHECKING:
    import optuna

Gains = tuple[float, ...]  # of the objectives, more is better
Excess = Mapping[str, float] | None


class Order(Protocol):
    """The protocol of an order; `key` is a cell's key."""

    def next(self, open_: Collection[str]) -> str | None: ...
    def tell(self, key: str, value: float | None, gains: Gains | None, excess: Excess = None) -> None: ...


@dataclass(frozen=True)
class Band:
    """An estimated latency in ms, and the bounds of its band."""

    low: float
    middle: float
    high: float


@dataclass
class Predicted:
    """The order of the estimates; it ends when the next cell's lower bound cannot win.

    bands   key -> its estimate
    hopes   key -> function of a latency in ms that returns the gains the cell would have
    rest    the order of the cells without an estimate, which follow

    Measurements outside their bands, on either side, show how wrong the bands are: `slack` lowers all remaining ones by
    the worst error so far, so that a wrong predictor costs trials, not the optimum.
    """

    bands: Mapping[str, Band]
    hopes: Callable[[str, float], Gains]
    rest: Order | None = None
    slack: float = 1.0
    seen: list[Gains] = field(default_factory=list)

    def next(self, open_: Collection[str]) -> str | None:
        if hopeful := [key for key in open_ if key in self.bands and not self.hopeless(key)]:
            return min(hopeful, key=lambda key: (self.bands[key].middle, key))
        return self.rest.next([key for key in open_ if key not in self.bands]) if self.rest else None

    def tell(self, key: str, value: float | None, gains: Gains | None, excess: Excess = None) -> None:
        if (band := self.bands.get(key)) is None:
            if self.rest:
                self.rest.tell(key, value, gains, excess)
        elif value is not None:
            self.slack = min(self.slack, value / band.low, band.high / value)
        if gains is not None:
            self.seen.append(gains)

    def least(self, key: str) -> float:
        """Return the lowest latency in ms that a cell may reach, given the errors of the estimates so far."""
        return self.bands[key].low * self.slack**2

    def hopeless(self, key: str) -> bool:
        """Return True if a measured cell is at least as good in every objective as this cell's best estimate."""
        best = self.hopes(key, self.least(key))
        return any(all(a >= b for a, b in zip(one, best)) for one in self.seen)


class Asked:
    """The order that Optuna's sampler chooses among known cells.

    cells   key -> {axis: value as text}
    folder, name   see Study
    """

    def __init__(
        self,
        cells: Mapping[str, Mapping[str, str]],
        objectives: int,
        seed: int,
        folder: Path | None = None,
        name: str = "search",
    ):
        axes = {axis: sorted({cell[axis] for cell in cells.values()}) for axis in next(iter(cells.values()), {})}
        self.space = {axis: Choice(tuple(values)) for axis, values in axes.items() if len(values) > 1}
        self.places: dict[str, Drawn] = {
            key: {axis: choice.values.index(cells[key][axis]) for axis, choice in self.space.items()} for key in cells
        }
        self.study = Study(self.space, objectives, seed, folder, name)
        self.asked: dict[str, optuna.Trial] = {}

    def next(self, open_: Collection[str]) -> str | None:
        """Return an open cell: the sampler's choice, or the first if the sampler insists on others."""
        if not open_:
            return None
        keys = {tuple(self.places[key].values()): key for key in sorted(open_)}
        if found := self.study.ask(lambda drawn: self._place(drawn) in keys):
            trial, drawn = found
        else:
            drawn = dict(self.places[min(open_)])
            trial = self.study.insist(drawn)
        key = keys[self._place(drawn)]
        self.asked[key] = trial
        return key

    def _place(self, drawn: Drawn) -> tuple[int | float, ...]:
        return tuple(drawn[axis] for axis in self.space)

    def tell(self, key: str, value: float | None, gains: Gains | None, excess: Excess = None) -> None:
        if (trial := self.asked.pop(key, None)) is not None:
            self.study.tell(trial, gains, excess)


def front(gains: Mapping[str, Gains]) -> list[str]:
    """Return the keys of the cells that no other beats (as good in all objectives and better in one)."""
    return [key for key, mine in gains.items() if not any(beats(other, mine) for other in gains.values())]

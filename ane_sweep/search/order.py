"""Which cell next: by its estimate where something predicts, else as Optuna asks.

Either is asked for the next key among those that are open, and told what came of it. `Predicted` also says when no open
cell can win any more.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ane_sweep.report.choice import beats

Gains = tuple[float, ...]  # of the objectives, more is better
ASKS = 20  # of Optuna for a cell that is open still: samplers repeat themselves


class Order(Protocol):
    """key   a cell's"""

    def next(self, open_: Collection[str]) -> str | None: ...
    def tell(self, key: str, value: float | None, gains: Gains | None) -> None: ...


@dataclass(frozen=True)
class Band:
    """An estimated latency in ms, and between what it is thought to lie."""

    low: float
    middle: float
    high: float


@dataclass
class Predicted:
    """In the order of the estimates, until the next one's lower band cannot win.

    bands   key -> its estimate
    hopes   key -> the gains it would have at a latency of so many ms

    Measurements outside their bands, on either side, say how wrong the bands are: `slack` lowers all that are left by the
    worst of what was seen, so that a predictor that is wrong costs trials, not the optimum.
    """

    bands: Mapping[str, Band]
    hopes: Callable[[str, float], Gains]
    slack: float = 1.0
    seen: list[Gains] = field(default_factory=list)

    def next(self, open_: Collection[str]) -> str | None:
        hopeful = [key for key in open_ if not self.hopeless(key)]
        return min(hopeful, key=lambda key: (self.bands[key].middle, key), default=None)

    def tell(self, key: str, value: float | None, gains: Gains | None) -> None:
        if value is not None:
            band = self.bands[key]
            self.slack = min(self.slack, value / band.low, band.high / value)
        if gains is not None:
            self.seen.append(gains)

    def least(self, key: str) -> float:
        """The latency in ms that a cell may have at best, as far as the estimates held so far."""
        return self.bands[key].low * self.slack**2

    def hopeless(self, key: str) -> bool:
        """Whether a cell that was tried is as good in everything as this one can be at its best."""
        best = self.hopes(key, self.least(key))
        return any(all(a >= b for a, b in zip(one, best)) for one in self.seen)


@dataclass
class Asked:
    """What Optuna's sampler asks for: TPE for one objective, NSGA-II for several.

    cells   key -> {axis: value as text}
    """

    cells: Mapping[str, Mapping[str, str]]
    objectives: int
    seed: int
    study: Any = None
    asked: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers = optuna.samplers
        made = samplers.TPESampler(seed=self.seed) if self.objectives == 1 else samplers.NSGAIISampler(seed=self.seed)
        self.study = optuna.create_study(directions=["maximize"] * self.objectives, sampler=made)
        axes = {
            axis: sorted({cell[axis] for cell in self.cells.values()}) for axis in next(iter(self.cells.values()), {})
        }
        self.space = {
            axis: optuna.distributions.CategoricalDistribution(values)
            for axis, values in axes.items()
            if len(values) > 1
        }
        self.keys = {self._place(cell): key for key, cell in self.cells.items()}

    def _place(self, values: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(values[axis] for axis in self.space)

    def next(self, open_: Collection[str]) -> str | None:
        """One that is open; the first such where the sampler insists on others. What it asked for in vain is told as failed."""
        if not open_:
            return None
        for _ in range(ASKS):
            trial = self.study.ask(self.space)
            key = self.keys.get(self._place(trial.params))
            if key is not None and key in open_:
                self.asked[key] = trial
                return key
            self._fail(trial)
        key = sorted(open_)[0]
        self.study.enqueue_trial({axis: self.cells[key][axis] for axis in self.space})
        self.asked[key] = self.study.ask(self.space)
        return key

    def tell(self, key: str, value: float | None, gains: Gains | None) -> None:
        trial = self.asked.pop(key, None)
        if trial is not None and gains is not None:
            self.study.tell(trial, list(gains))
        elif trial is not None:
            self._fail(trial)

    def _fail(self, trial: Any) -> None:
        import optuna

        self.study.tell(trial, state=optuna.trial.TrialState.FAIL)


def front(gains: Mapping[str, Gains]) -> list[str]:
    """Keys of the cells that no other beats: as good in all objectives and better in one."""
    return [key for key, mine in gains.items() if not any(beats(other, mine) for other in gains.values())]

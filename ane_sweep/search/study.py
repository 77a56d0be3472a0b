"""Optuna's study of the trials of one search, stored next to the records.

TPE for one objective, NSGA-II for several. A violated limit is reported as a constraint, in shares of the limit.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ane_sweep.bridge import kept
from ane_sweep.planner.space import Choice, Dimension
from ane_sweep.store.runs import STUDY

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

Drawn = dict[str, int | float]  # name of a dimension -> the position of one of its values, or a number
VAIN = "tried before"  # marks a trial that came to nothing
ASKS = 20  # for something new: samplers repeat themselves
POPULATION = 12  # a generation of NSGA-II: its own 50 would be more than most searches try
WORST = -1e30  # in place of a figure that nobody took, of a trial that breaks a limit: it is never weighed


class Study:
    """The trials of one search.

    folder   the run's folder, which stores the trials; None: in memory
    name     equal for two searches of one run that may continue each other
    """

    def __init__(self, space: Mapping[str, Dimension], objectives: int, seed: int, folder: Path | None, name: str):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.objectives = objectives
        self.space = {name: _distribution(one) for name, one in space.items()}
        self.study = self._opened(folder, name)
        self.earlier = [
            one for one in self.study.trials if one.params.keys() == self.space.keys() and VAIN not in one.user_attrs
        ]
        self.told = {one.number for one in self.earlier if one.state.is_finished()}
        again = seed + len(self.study.trials)  # a sampler that begins anew would ask for the same again
        samplers = optuna.samplers
        if objectives == 1:
            self.study.sampler = samplers.TPESampler(seed=again)
        else:
            self.study.sampler = samplers.NSGAIISampler(seed=again, population_size=POPULATION)

    def _opened(self, folder: Path | None, name: str) -> "optuna.Study":
        import optuna

        directions: list[Literal["maximize"]] = ["maximize"] * self.objectives
        create = partial(optuna.create_study, directions=directions, study_name=name, load_if_exists=True)
        if folder is None:
            return create()
        path = folder / STUDY
        try:
            return create(storage=self._storage(path))
        except (ValueError, KeyError, TypeError, AssertionError):  # what its reader raises for lines that are torn
            kept.tell(f"{path} is damaged: what was asked for is asked again; what ran is not run again")
            path.unlink(missing_ok=True)
            return create(storage=self._storage(path))

    def _storage(self, path: Path) -> "optuna.storages.JournalStorage":
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
        from optuna.storages.journal._file import BaseJournalFileLock

        class NoLock(BaseJournalFileLock):
            """A lock that does nothing: the run is locked already, and a lock of Optuna's would outlive a killed process."""

            def acquire(self) -> bool:
                return True

            def release(self) -> None: ...

        return JournalStorage(JournalFileBackend(str(path), lock_obj=NoLock()))

    def ask(self, wanted: Callable[[Drawn], bool]) -> "tuple[optuna.Trial, Drawn] | None":
        """Return (trial, its values): an earlier unfinished trial or a new one; None if the sampler only repeats unwanted ones."""
        from optuna import Trial

        while self.earlier:
            one = self.earlier.pop(0)
            if wanted(one.params):
                return Trial(self.study, one._trial_id), dict(one.params)
        for _ in range(ASKS):
            trial = self.study.ask(self.space)
            if wanted(trial.params):
                return trial, dict(trial.params)
            trial.set_user_attr(VAIN, True)
            self.tell(trial, None)
        return None

    def insist(self, drawn: Drawn) -> "optuna.Trial":
        """Return a trial with exactly these values."""
        self.study.enqueue_trial(drawn)
        return self.study.ask(self.space)

    def tell(
        self,
        trial: "optuna.Trial",
        gains: tuple[float, ...] | None,
        excess: Mapping[str, float] | None = None,
        *,
        hopeless: bool = False,
    ) -> None:
        """Report the result of a trial.

        gains     values of the objectives, more is better; None if unknown
        excess    limit -> share by which it is violated
        hopeless  whether it was not timed because it could not have won
        """
        from optuna.trial import TrialState

        if trial.number in self.told:
            return
        for limit, share in (excess or {}).items():
            trial.set_constraint(limit, share)
        if gains is None and excess and self.objectives > 1:
            gains = (WORST,) * self.objectives  # NSGA-II looks at complete trials alone
        if gains is not None:
            self.study.tell(trial, list(gains))
        else:
            self.study.tell(trial, state=TrialState.PRUNED if excess or hopeless else TrialState.FAIL)


def _distribution(dimension: Dimension) -> "BaseDistribution":
    from optuna import distributions as kinds

    if not isinstance(dimension, Choice):
        return kinds.FloatDistribution(dimension.low, dimension.high)
    count = len(dimension.values)
    return (
        kinds.IntDistribution(0, count - 1) if dimension.ordered else kinds.CategoricalDistribution(list(range(count)))
    )

"""One search: prepare cells, drop those that violate a limit, time the rest in order of promise, stop if no remaining cell can win."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ane_sweep import engine
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.plan import Outcome, Plan
from ane_sweep.bridge.record import Record, StageStatus, Status
from ane_sweep.bridge.runtimes import traits
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.bridge.stages import STAGES, Stage
from ane_sweep.bridge.task import Task
from ane_sweep.engine import Terminal
from ane_sweep.machine import host
from ane_sweep.placement import sizes
from ane_sweep.results import assemble, search_log
from ane_sweep.results.headline import MEASURED
from ane_sweep.search.goal import Goal, figure
from ane_sweep.search.order import Asked, Band, Order, Predicted
from ane_sweep.search.timings import find_runtime
from ane_sweep.store import files
from ane_sweep.store.cache import Store
from ane_sweep.store.runs import Run
from ane_sweep.terminal import count

# Stages by cost: packages and predictions first, then scores; timings come after both.
PHASES: tuple[Callable[[Stage], bool], ...] = (
    lambda stage: not (stage.alone or stage.runs_program or stage.leaves == "outputs"),
    lambda stage: not stage.alone,
)
HOPELESS = "its estimate, at its best, is no better than what was found"
SETTLED = "its timing was not needed: the goal is known without it"
NOT_WRONG = (Status.OK, Status.DEGRADED, Status.FALLBACK, Status.SKIPPED)


def _withheld(records: list[Record]) -> str:
    """Return the most frequent reason why these records have no estimate, after a colon; empty if none is known."""
    reasons = Counter(entry.not_estimated for r in records for entry in r.placed("predicted") if entry.not_estimated)
    return f": {reasons.most_common(1)[0][0]}" if reasons else ""


@dataclass
class Search:
    """The state of one search.

    never    key of a cell -> reason why it was not timed
    trials   keys in the order in which they were timed; tried: keys in the order in which they were chosen
    values   key -> {axis: value} of the axes that vary
    """

    plan: Plan
    run: Run
    store: Store
    settings: RunSettings
    goal: Goal
    audience: Terminal
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    never: dict[str, str] = field(default_factory=dict)
    trials: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    values: dict[str, dict[str, object]] = field(default_factory=dict)
    doubted: set[str] = field(default_factory=set)  # warnings of tasks that were shown already
    lacking: str | None = None  # an objective whose figure a timed cell does not have
    how: str = "nothing had to be timed: all that the goal asks for is known before"

    def __post_init__(self) -> None:
        minutes = self.settings.budget_minutes
        self.until = None if minutes is None else time.monotonic() + 60 * minutes
        self.host, self.toolchain = host.fingerprint(), host.toolchain()
        axes = self.plan.axes or ["model"]
        self.labels = {cell.key: cell.label(axes) for cell in self.plan.cells}
        self.values = {cell.key: {axis: cell.value(axis) for axis in axes} for cell in self.plan.cells}

    def go(self) -> list[Record]:
        """Run the search and return all records; records of untimed cells have the reason."""
        for wanted in PHASES:
            self._perform(self._part(self.open(), wanted))
            self._settle_default(self.open())
            self._drop()
        known = self.known_records(self.open())
        if not known:
            self.how = "as none was left" if self.times else "nothing was timed, as no cell was left"
        elif self.times and any(map(self.goal.untimed, known.values())):
            self._time(self._order(known))
        else:
            self.never |= dict.fromkeys(known, SETTLED)
            self.tried += known
        return self.records(self.plan)

    def summary(self, cells: int) -> str:
        """Return a sentence on how many cells were timed and how."""
        timed = "" if not self.times and not self.trials else f"{len(self.trials)} of {cells} cells timed, "
        return f"{timed}{self.how}"

    def words(self, key: str) -> list[str]:
        """Return the words of a sweep of that cell alone; none for a listed cell, which the search's own words contain."""
        return []

    def read(self, kept: search_log.SearchLog | None, records: list[Record]) -> None:
        """Restore the state from a finished run: from its search log, or without one from a sweep of all cells."""
        self.how = "in a sweep of all"
        self.trials = [r.cell_key for r in records if r.value(MEASURED) is not None]
        if kept is not None:
            self.how = kept.how + ("" if str(kept.goal) == str(self.goal) else f", in a search for {kept.goal}")
            self.never = {left.cell: left.reason for left in kept.never}
            self.trials = [trial.cell for trial in kept.trials if trial.never is None]
            self.tried = [trial.cell for trial in kept.trials]
            self.labels |= {trial.cell: trial.label for trial in kept.trials}
            self.labels |= {left.cell: left.label for left in kept.never}
            self.values |= {trial.cell: trial.values for trial in kept.trials if trial.values}

    @property
    def times(self) -> bool:
        """Return True if the goal needs timings."""
        return any(STAGES[task.stage].pooled for task in self.plan.tasks.values())

    def open(self) -> list[str]:
        """Return the keys of cells that may still win and have not been timed."""
        return [key for key in self.plan.chains if key not in self.never and key not in self.trials]

    def records(self, plan: Plan) -> list[Record]:
        reasons = {task: reason for key, reason in self.never.items() for task in self.plan.list_tasks(key)}
        known = {task: Outcome(StageStatus.SKIPPED, reasons.get(task, "its turn has not come")) for task in plan.tasks}
        made = assemble.make_records(
            plan,
            known | self.outcomes,
            sweep=self.run.stamp,
            host=self.host,
            toolchain=self.toolchain,
            files=files.artifact_files,
        )
        for record in made:
            why = self.never.get(record.cell_key)
            left = (Status.SKIPPED,) if why == SETTLED else (Status.SKIPPED, Status.OK, Status.DEGRADED)
            if why and record.status in left:
                record.status, record.reason = Status.SKIPPED, f"{search_log.LEFT_OUT}{why}"
        return made

    def known_records(self, keys: list[str]) -> dict[str, Record]:
        """Return {key: record} of the cells, with the facts known so far."""
        return {record.cell_key: record for record in self.records(self.plan.only(keys))}

    def _part(self, keys: list[str], wanted: Callable[[Stage], bool]) -> Plan:
        part = self.plan.only(keys)
        tasks: dict[str, Task] = {}
        for key, task in reversed(part.tasks.items()):  # and what they are made from: a calibration reads the reference
            if wanted(STAGES[task.stage]) or any(key in later.inputs.values() for later in tasks.values()):
                tasks[key] = task
        return replace(part, tasks=dict(reversed(tasks.items())))

    def _perform(self, part: Plan) -> None:
        """Run the remaining tasks of a part of the plan. Raises KeyboardInterrupt."""
        if part.tasks.keys() <= self.outcomes.keys():
            return
        left = None if self.until is None else max(0.0, self.until - time.monotonic()) / 60
        settings = replace(self.settings, budget_minutes=left)
        engine.run_remaining(part, self.run, settings, self.store, self.audience, self.outcomes)
        # each new warning is told at once: a user may want to end a search early over options that have no effect
        for doubt in (doubt for outcome in self.outcomes.values() for doubt in outcome.result.doubts):
            if doubt not in self.doubted:
                self.doubted.add(doubt)
                self.audience.tell(f"doubt: {doubt}")

    def _settle_default(self, keys: list[str]) -> None:
        """Replace the default goal, the least estimate, if no estimate of these cells is known."""
        known = [record for record in self.known_records(keys).values() if record.status in NOT_WRONG]
        [name] = self.goal.objectives if self.goal.by_default and not self.times else [""]
        limited = any(limit.figure == name for limit in self.goal.limits)
        if not name or limited or not known or any(figure(record, name) is not None for record in known):
            return
        self.goal = self.goal.by_shares(self.settings.chips)
        self.audience.tell(
            f"no latency is estimated of any cell{_withheld(known)}; searching for the {self.goal}, then PSNR and size"
        )

    def _drop(self) -> None:
        """Drop cells that violate a limit, that failed, or that lack an estimate or a prediction that the goal needs.

        Estimates and predictions are known once a cell is prepared.
        """
        for key, record in self.known_records(self.open()).items():
            if limit := self.goal.broken(record):
                self.never[key] = f"{limit.figure} is {figure(record, limit.figure):.4g}, and {limit} was asked for"
            elif record.status not in NOT_WRONG:
                self.never[key] = f"it {record.status}: {record.reason}"
            elif name := self.goal.unknowable(record):
                self.never[key] = f"{name} is not known of it{_withheld([record])}"

    def _order(self, known: dict[str, Record]) -> Order:
        bands = {key: band for key, record in known.items() if (band := self._band(record))}
        if not bands or "latency_ms" not in self.goal.objectives:
            self.how = f"as Optuna asked: {self._why(list(known.values()))}"
            return self._unpredicted(known)
        rest = {key: record for key, record in known.items() if key not in bands}
        self.how = "in the order of the estimates for this chip"
        if rest:
            self.how += f"; {count(len(rest), 'cell')} without one after them, as Optuna asked: {self._why(list(rest.values()))}"
        hopes = lambda key, latency_ms: self.goal.hopes(known[key], latency_ms)  # noqa: E731
        return Predicted(bands, hopes, self._unpredicted(rest) if rest else None)

    def _unpredicted(self, known: dict[str, Record]) -> Order:
        cells = {key: {axis: format_value(value) for axis, value in self.values[key].items()} for key in known}
        seed = self.settings.search.seed
        return Asked(cells, len(self.goal.objectives), seed, self.run.folder, f"{self.goal} over {len(cells)} cells")

    def _why(self, records: list[Record]) -> str:
        """Return the most frequent reason why these records have no estimate of this host's own latency."""
        chip = sizes.chip_of(self.host.get("chip"))
        entries = (one for r in records if self._is_coreml(r) for one in r.placed("predicted") if one.chip == chip)
        reasons = Counter(entry.not_estimated for entry in entries if entry.not_estimated)
        return f"not estimated: {reasons.most_common(1)[0][0]}" if reasons else "nothing here predicts what is measured"

    def _is_coreml(self, record: Record) -> bool:
        return traits(find_runtime(record.cell_key, self.plan)).coreml

    def _band(self, record: Record) -> Band | None:
        """Return the band of this host's estimated latency; None on unsupported chips and for runtimes on a CPU."""
        if not self._is_coreml(record):
            return None
        chip = sizes.chip_of(self.host.get("chip"))
        names = ("latency_low_ms", "latency_ms", "latency_high_ms")
        low, middle, high = (record.value(name, "estimated", chip) for name in names)
        return Band(low, middle, high) if low and middle and high else None

    def _time(self, order: Order) -> None:
        while (key := order.next(self.open())) is not None:
            if why := self._ended():
                break
            self.audience.tell(
                f"trial {len(self.trials) + 1}, {count(len(self.open()), 'cell')} left: {self.labels[key]}"
            )
            self._perform(self.plan.only({key}))
            for done in [key, *(other for other in self.open() if other != key and self._is_done(other))]:
                self._note(done, order)
        else:
            why = HOPELESS
        self.never |= dict.fromkeys(self.open(), why)

    def _note(self, key: str, order: Order) -> None:
        """Note that a cell was timed, directly or through a cell that shares its timing."""
        record = self.known_records([key])[key]
        self.trials.append(key)
        self.tried += [key] if key not in self.tried else []
        fits = is_eligible(self.goal, record)
        if fits and (lacking := [name for name in self.goal.objectives if figure(record, name) is None]):
            self.lacking = lacking[0]
        excess = self.goal.excess(record) if record.status in NOT_WRONG else None
        order.tell(key, figure(record, "latency_ms"), self.goal.gains(record) if fits else None, excess)

    def _is_done(self, key: str) -> bool:
        return all(task in self.outcomes for task in self.plan.list_tasks(key))

    def _ended(self) -> str | None:
        """Return the reason why no further cell is timed, or None to continue."""
        most = self.settings.search.trials
        if most is not None and len(self.trials) >= most:
            return f"search.trials={most} were spent"
        return self._stopped()

    def _stopped(self) -> str | None:
        if self.lacking:
            return f"{self.lacking} was not recorded of what was timed: this runtime or host does not take it"
        if self.until is not None and time.monotonic() >= self.until:
            return "budget_minutes was spent before its turn"
        return None


def is_eligible(goal: Goal, record: Record) -> bool:
    """Return True if a cell ran well enough to win, and is within the goal's limits."""
    return record.status in NOT_WRONG and goal.fits(record)

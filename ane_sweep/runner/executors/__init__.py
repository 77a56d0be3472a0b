"""Executors: one module each, with its declaration EXECUTOR and a function `execute`."""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from ane_sweep.bridge.executors import EXECUTORS
from ane_sweep.bridge.plan import Outcome, Plan
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.machine.memory import memory_budget
from ane_sweep.runner.gate import TimingGate
from ane_sweep.runner.task_runner import Display, TaskRunner
from ane_sweep.store.cache import Store
from ane_sweep.store.runs import Run


class Execute(Protocol):
    """The interface of an executor's function `execute`."""

    def __call__(
        self, runner: TaskRunner, settings: RunSettings, meanwhile: Callable[[], None] | None = None
    ) -> dict[str, Outcome]:
        """Run every remaining task of the runner's plan and return the outcome of each, by key. Raises KeyboardInterrupt.

        meanwhile  work for this process while others prepare, if this machine prepares; finished before the first
                   timing

        No task begins after settings.budget_minutes: the rest is skipped.
        """


def make_runner(
    plan: Plan,
    run: Run,
    store: Store,
    settings: RunSettings,
    display: Display,
    outcomes: dict[str, Outcome] | None = None,
) -> TaskRunner:
    """Return what an executor runs a plan's tasks with. `outcomes`: those of finished tasks; new ones are added."""
    budget, gate = memory_budget(settings.memory_gib), TimingGate(**vars(settings.gate), tell=display.say)
    return TaskRunner(plan, run, store, display, budget, 1, gate, outcomes={} if outcomes is None else outcomes)


def load_execute(name: str) -> Execute:
    """Return the function that runs plans with an executor. Raises ConfigError for an unknown one."""
    EXECUTORS[name]
    execute: Execute = import_module(f"{__name__}.{name}").execute
    return execute

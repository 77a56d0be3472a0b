"""The declarations of executors: the literal EXECUTOR of each module in ane_sweep/runner/executors/."""

from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from ane_sweep.bridge.declared import Declared
from ane_sweep.bridge.settings import RunSettings

if TYPE_CHECKING:  # a plan is made of records, which no word of the shell is completed from
    from ane_sweep.bridge.plan import Places


@dataclass(frozen=True)
class Executor:
    """A way to run a sweep's tasks.

    help    a few words about the machines that run the tasks
    places  "module:function" in the planner, called like `find_places`, that finds the machine for each value of
            `machine`; "": this machine runs everything
    """

    help: str
    places: str = ""


# This machine first: it is the default.
EXECUTORS = Declared("ane_sweep.runner.executors", "EXECUTOR", Executor, order=lambda executor: bool(executor.places))


def find_places(settings: RunSettings, machines: Collection[str | None], *, wait: bool) -> "Places | None":
    """Return the machines that each value of the axis `machine` stands for, or None if this machine runs everything.

    With `wait`, wait up to executor.wait_s for workers that fit. Raises ConfigError.
    """
    module, _, function = EXECUTORS[settings.executor.name].places.partition(":")
    if not module:
        return None
    places: Places = getattr(import_module(module), function)(settings, machines, wait=wait)
    return places

"""The declarations of executors: the literal EXECUTOR of each module in ane_sweep/runner/executors/."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ane_sweep.bridge.declared import Declared
from ane_sweep.bridge.plan import Places


@dataclass(frozen=True)
class Executor:
    """A way to run a sweep's tasks.

    help    a few words about the machines that run the tasks
    places  "module:function" on the planner's side that finds the machine of each `machine=`, called as `find_places` here;
            "": this machine runs everything
    """

    help: str
    places: str = ""


# This machine first: it is the default.
EXECUTORS = Declared("ane_sweep.runner.executors", "EXECUTOR", Executor, order=lambda executor: bool(executor.places))


def find_places(settings: Mapping[str, Any], machines: Collection[str | None], *, wait: bool) -> Places | None:
    """Return the machines that each value of the axis `machine` stands for, or None if this machine runs everything.

    With `wait`, wait up to executor.wait_s for workers that fit. Raises ConfigError.
    """
    executor = settings.get("executor")
    module, _, function = (EXECUTORS[executor["name"]].places if executor else "").partition(":")
    if not module:
        return None
    places: Places = getattr(import_module(module), function)(settings, machines, wait=wait)
    return places

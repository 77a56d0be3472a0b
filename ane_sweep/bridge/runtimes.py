"""What every runtime says of itself: the literal RUNTIME of its module (runtimes/NAME.py). What a loaded one can do is the
protocol `Runtime` in runtimes/__init__.py.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from ane_sweep.bridge.declared import Declared


@dataclass(frozen=True)
class Traits:
    """One runtime, as planner, runner and reports see it.

    needs       packages to execute, or a checkpoint for a torch module
    measured    what its latency is measured on, for people; `{chip}` is the host's
    hardware    whose that is: "Apple", or this host's "CPU", "NVIDIA GPU" ...
    honours     the axes that change what it runs
    auto        place among those that runtime=auto takes the first available one of; 0: by its name only
    coreml      Core ML itself executes: it loads what stage compile leaves, its loads are timed apart, and a verdict says where
                the program ran
    alone       nothing else runs beside it, scoring included
    idle_s      latency.idle_s where that is null: hardware that falls asleep
    cannot      "module:function" of the planner's side, which says why this host cannot run it; "": every host can
    asks        "module:function" likewise: what they say of this host enters the keys, under the functions' names
    """

    needs: Literal["program", "checkpoint"]
    measured: str
    hardware: str
    honours: tuple[str, ...] = ()
    auto: int = 0
    coreml: bool = False
    alone: bool = False
    idle_s: float = 0.0
    cannot: str = ""
    asks: tuple[str, ...] = ()


RUNTIMES = Declared("ane_sweep.worker.runtimes", "RUNTIME", Traits)
UNKNOWN = Traits(needs="program", measured="", hardware="CPU")


def cannot(name: str) -> str | None:
    """Why this host cannot run a runtime; None where it can."""
    door = RUNTIMES[name].cannot
    return _behind(door) if door else None


def asked(name: str) -> dict[str, Any]:
    """What this host says of itself that a runtime's figures depend on."""
    return {door.partition(":")[2]: _behind(door) for door in RUNTIMES[name].asks}


def _behind(door: str) -> Any:
    module, _, function = door.partition(":")
    return getattr(import_module(module), function)()


def traits(name: Any) -> Traits:
    """Of the runtime that a record names, which may be one that this install has not: then nothing is known of it."""
    return RUNTIMES.get(str(name), UNKNOWN)

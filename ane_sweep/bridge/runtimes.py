"""The declarations of runtimes: the literal RUNTIME of each module runtimes/NAME.py. Protocol `Runtime` in
runtimes/__init__.py lists the methods of a loaded runtime.
"""

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Literal

from ane_sweep.bridge import declared, plugins
from ane_sweep.bridge.declared import Declared
from ane_sweep.bridge.programs import DEFAULT, PACKAGE, PROGRAMS, ProgramKind
from ane_sweep.errors import ConfigError


@dataclass(frozen=True)
class Traits:
    """One runtime, as planner, runner and reports see it.

    needs       packages to execute, or a checkpoint for a torch module
    program     the kind of program that it executes: a folder of worker/programs/
    measured    the hardware that its latency is measured on, for people; `{chip}` stands for the host's
    hardware    the kind of that hardware: "Apple", or this host's "CPU", "NVIDIA GPU" ...
    honours     the axes that it supports
    auto        rank among the runtimes that runtime=auto tries; 0: only by name
    coreml      Core ML executes: it loads the output of stage compile, its loads are timed separately, and a verdict
                says on which units the program ran
    alone       nothing else runs at the same time, scoring included
    idle_s      the default of latency.idle_s, for hardware that falls asleep
    cannot      "module:function" in the planner that returns why this host cannot run it; "": every host can
    warm        modules that it always loads, so that its process can be forked with them loaded; empty: its process
                starts cold
    asks        "module:function" in the planner: the facts of this host that they return are part of the keys, under
                the functions' names
    streams     it holds weights by a budget, and not all of them
    exact       modes of numerics in which it rounds each value that a cut hands over, so that cuts change no bit
    per_gmac_s  estimated seconds of a billion multiply-adds (planner/durations.py)
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
    warm: tuple[str, ...] = ()
    program: str = DEFAULT
    streams: bool = False
    exact: tuple[str, ...] = ()
    per_gmac_s: float = 0.001


class Runtimes(Declared[Traits]):
    """Our runtimes and those of plug-ins. Requesting a plug-in that cannot be used raises the reason."""

    def __init__(self) -> None:
        super().__init__("ane_sweep.worker.runtimes", "RUNTIME", Traits)
        own = sorted(declared.folder(PACKAGE).glob("*/run.py"))  # a program kind's runtime, of the kind's name
        self.update({path.parent.name: declared.read(path, self.literal, Traits) for path in own})
        self.ours, self.broken = tuple(self), dict[str, str]()
        for name, one in plugins.usable("runtimes", self.ours).items():
            try:
                assert one.source is not None  # of a usable one
                self[name] = replace(declared.read(one.source, self.literal, Traits), auto=0)
            except (ConfigError, OSError, ValueError) as error:
                self.broken[name] = f"runtime {name!r} of {one} cannot be used: {error}"

    def problem(self, name: str) -> str | None:
        """Return why a declared runtime cannot be used, or None if it can or is unknown."""
        return plugins.problem("runtimes", name, self.ours) or self.broken.get(name)

    def __missing__(self, name: str) -> Traits:
        if said := self.problem(name):
            raise ConfigError(said)
        return super().__missing__(name)

    def module_of(self, name: str) -> str:
        """Return the module that implements a runtime of ours."""
        own = f"{PACKAGE}.{name}"
        return f"{own}.run" if (declared.folder(own) / "run.py").is_file() else f"{self.package}.{name}"

    def plugin_of(self, name: str) -> plugins.Plugin | None:
        """Return the plug-in that defines a runtime, or None for a runtime of ours. Raises ConfigError if the plug-in is broken."""
        return plugins.only("runtimes", name, self.ours)


RUNTIMES = Runtimes()
UNKNOWN = Traits(needs="program", measured="", hardware="CPU")


def cannot(name: str) -> str | None:
    """Return why this host cannot run a runtime, or None if it can."""
    door = RUNTIMES[name].cannot
    reason = _behind(door) if door else None
    return None if reason is None else str(reason)


def collect_host_facts(name: str) -> dict[str, object]:
    """Return the facts of this host that a runtime's figures depend on."""
    return {door.partition(":")[2]: _behind(door) for door in RUNTIMES[name].asks}


def _behind(door: str) -> object:
    module, _, function = door.partition(":")
    return getattr(import_module(module), function)()


def traits(name: object) -> Traits:
    """Return the traits of the runtime that a record names; UNKNOWN for a runtime that this install does not have."""
    return RUNTIMES.get(str(name), UNKNOWN)


def program_kind(name: object) -> ProgramKind:
    """Return the kind of program that the runtime that a record names executes."""
    return PROGRAMS[traits(name).program]

"""The hook for a stand-in: a simulated Mac that answers for Core ML and macOS' tools, for tests.

    ANE_SWEEP_STAND_IN=script.json ane-sweep runtime=coreml ...

No stand-in is part of the product: the plug-in PLUGIN, which lies in the tests of a checkout, plays the script, and
only this module loads it. All results are labelled: `stand_in` in the record's `host` and `realised`, in every row of
the table, in the tracker's run name and tags, and as the source of each figure. The script's digest is part of the
host's, so a scripted result is never taken from the cache for a real one.

Standard library only, as planner and worker both use it.
"""

import importlib
import os
import subprocess
from collections.abc import Mapping
from typing import Protocol

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.runtimes import traits
from ane_sweep.bridge.stages import STAGES
from ane_sweep.errors import ConfigError

VARIABLE = "ANE_SWEEP_STAND_IN"
STAGE_VARIABLE = "ANE_SWEEP_STAGE"  # of the task that asks; the worker sets it for itself and for what it starts
PLUGIN = "tests.stand_in"
_ON_COREML = {name for name, stage in STAGES.items() if stage.on_coreml}


class StandIn(Protocol):
    """A stand-in (a simulated Mac) as the product uses it. `host` overrides facts of this host; `digest` is the script's sha256."""

    @property
    def digest(self) -> str: ...
    @property
    def host(self) -> dict[str, str]: ...

    def label(self) -> str:
        """Return the label that records, tables and trackers show."""

    def labelled(self, metric: Metric) -> Metric:
        """Return a metric with the script as its source, as the figure is not from a device."""

    def ask(self, command: tuple[str, ...]) -> tuple[int | None, str, str] | None:
        """Return a tool's exit code (None: no answer in time), stdout and stderr; None if the tool does not exist."""

    def start(self, command: tuple[str, ...], **options: object) -> subprocess.Popen[bytes]:
        """Start a process that prints the tool's scripted output, with Popen's options. Raises FileNotFoundError for an unknown tool."""

    def install(self) -> None:
        """Make coremltools give the scripted answers, and `time` the scripted clock, in a worker's process."""


def active() -> StandIn | None:
    """Return the active stand-in (a simulated Mac), or None, which is the usual case. Raises ConfigError for an unusable one."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        plugin = importlib.import_module(PLUGIN)
    except ImportError:
        raise ConfigError(
            f"{VARIABLE}={path}: the stand-in is not in this installation, it lies beside the tests; unset the variable, "
            "or run from a checkout"
        ) from None
    made: StandIn = plugin.read(os.path.abspath(path))
    return made


def concerns(stage: str, params: Mapping[str, object]) -> bool:
    """Return True if a task calls Core ML; other tasks run without the stand-in."""
    return stage in _ON_COREML or traits(params.get("runtime")).coreml

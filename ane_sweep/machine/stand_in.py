"""The seam for a stand-in that answers in a Mac's place, in place of Core ML and of macOS' tools.

    ANE_SWEEP_STAND_IN=script.json ane-sweep runtime=coreml ...

No stand-in is part of the product: the plug-in PLUGIN, which lies in the tests of a checkout, plays the script, and this is
the only module that asks for it. All results are labelled: `stand_in` in the record's `host` and `realised`, in every row of
the table, in the tracker's run name and tags, and as the source of each figure. The script's digest is part of the host's, so
nothing scripted is ever taken from the cache for something real.

Standard library only: planner and worker both ask.
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
    """A stand-in as the product sees it. `host` is laid over the facts of this host, `digest` is the script's sha256."""

    @property
    def digest(self) -> str: ...
    @property
    def host(self) -> dict[str, str]: ...

    def label(self) -> str:
        """Return the label that records, tables and trackers show."""

    def labelled(self, metric: Metric) -> Metric:
        """Return a metric whose source names the script, as the figure is not from a device."""

    def ask(self, command: tuple[str, ...]) -> tuple[int | None, str, str] | None:
        """Return a tool's exit code (None: no answer in time), stdout and stderr; None if the tool does not exist."""

    def start(self, command: tuple[str, ...], **options: object) -> subprocess.Popen[bytes]:
        """Start a process that prints what the tool would, with Popen's options. Raises FileNotFoundError for no such tool."""

    def install(self) -> None:
        """Put the answers under coremltools, and the scripted clock into `time`; for a worker's process."""


def active() -> StandIn | None:
    """Return the stand-in in force, or None: the usual case. Raises ConfigError for one that cannot be used."""
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
    """Return True if a task asks Core ML at all; the others run as without a stand-in."""
    return stage in _ON_COREML or traits(params.get("runtime")).coreml

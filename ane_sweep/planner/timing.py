"""How a cell is timed: in rounds on a quiet machine, by a few calls that check that its program runs here, or not at all."""

from dataclasses import dataclass

from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.runtimes import RUNTIMES
from ane_sweep.bridge.task import AUTO_REPEATS

# Option of `latency` -> (its default in conf/config.yaml, a check's value in place of the default).
_OF_A_CHECK = {"warmup": (3, 1), "samples": (20, 3), "max_seconds": (120, 3)}


@dataclass(frozen=True)
class TimingPlan:
    """The timing of one cell.

    policy    calls and seconds of one process
    repeats   number of processes; 0: nothing is timed
    is_check  the time is no answer of the cell: one process, beside others, on a machine as busy as it is
    is_auto   the first process decides whether the others run
    """

    policy: dict[str, float]
    repeats: int
    is_check: bool
    is_auto: bool


def plan_timing(cell: Cell, runtime: str) -> TimingPlan:
    """Return how a cell is timed by the runtime that runs it.

    A time is only a check if the user asked for no time of this host: Core ML does not run here, and neither a runtime
    nor latency.repeats is given. A check keeps to options of `latency` that differ from their defaults.
    """
    is_auto = cell.latency["repeats"] == "auto"
    is_check = is_auto and cell.runtime == "auto" and not RUNTIMES[runtime].coreml
    policy = {name: value for name, value in cell.latency.items() if name != "repeats"}
    if is_check:
        policy |= {name: few for name, (default, few) in _OF_A_CHECK.items() if policy[name] == default}
    repeats = (1 if is_check else AUTO_REPEATS) if is_auto else cell.latency["repeats"]
    return TimingPlan(policy, repeats, is_check, is_auto)

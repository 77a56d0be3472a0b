"""The planner's choice of units: the cheapest path through the ops in file order.

Three constants of 0.125 ms each, from the header of the planner's own files (751K study, M4, macOS 27.0.1): launching
an ANE segment, any change of backend, and copying back when the last op is on the ANE. Graph inputs are free. Given
Core ML's own estimates this reproduces 481 of 482 measured M4 programs (41 of them ties).
"""

import math
from collections.abc import Sequence
from itertools import groupby

LAUNCH_MS = 0.125
SWITCH_MS = 0.125
COPY_BACK_MS = 0.125
CPU, ANE = "cpu", "ane"
_TIE_MS = 1e-9


def choose(costs: Sequence[tuple[float, float | None]]) -> tuple[list[str], float]:
    """Return the unit of each op and the total ms. `costs` holds (cpu ms, ane ms) per op; None if the ANE refuses it.

    Equal totals go to the ANE (two thirds of the measured ties did).
    """
    if not costs:
        return [], 0.0
    both = [(on_cpu, math.inf if on_ane is None else on_ane) for on_cpu, on_ane in costs]
    cpu, ane = both[0][0], both[0][1] + LAUNCH_MS
    came: list[tuple[bool, bool]] = []  # per op after the first: whether its CPU and its ANE state came from the ANE
    for on_cpu, on_ane in both[1:]:
        leave, enter = ane + SWITCH_MS, cpu + SWITCH_MS + LAUNCH_MS
        cpu_from_ane, ane_from_ane = leave <= cpu + _TIE_MS, ane <= enter + _TIE_MS
        came.append((cpu_from_ane, ane_from_ane))
        cpu, ane = min(leave, cpu) + on_cpu, min(ane, enter) + on_ane
    ane += COPY_BACK_MS
    unit = ANE if ane <= cpu + _TIE_MS else CPU
    units = [unit]
    for cpu_from_ane, ane_from_ane in reversed(came):
        unit = ANE if (cpu_from_ane if unit == CPU else ane_from_ane) else CPU
        units.append(unit)
    return units[::-1], min(cpu, ane)


def count_segments(units: Sequence[str]) -> tuple[int, int]:
    """Return (segments, transitions): the number of stretches on one unit, and of changes between them."""
    segments = sum(1 for _ in groupby(units))
    return segments, max(segments - 1, 0)

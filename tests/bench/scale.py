"""what a sweep of thousands of cells takes of the parent: planning it, and walking it with processes that are played"""

import math
import sys
from typing import Any

from tests.bench import Row, said

PLANNED, WALKED = (1_000, 3_000, 10_000), (1_000, 3_000, 10_000)
MB = 1e6
LINEAR = "at most 1.1"


def run(planned: tuple[int, ...] = PLANNED, walked: tuple[int, ...] = WALKED) -> list[Row]:
    """Seconds are of CPU, megabytes the peak beyond what the process has before it plans. Each size is a fresh process."""
    plans = [_told(cells, "plan") for cells in planned]
    rows = [
        Row(
            f"planning {_size(one)}",
            f"{_seconds(one, 'cells', 'plan', 'told'):.1f} s of CPU, {_peak(one, 'told'):.0f} MB",
        )
        for one in plans
    ]
    rows += [
        _growth("the same: exponent of time", plans, "cells", "plan", "told"),
        _growth_of_memory("the same: exponent of memory", plans, "told"),
    ]
    walks = [_told(cells, "walk") for cells in walked]
    for one in walks:
        milliseconds = 1000 * _seconds(one, "walk") / one["tasks"]
        ends = _seconds(one, "records", "written")
        rows.append(
            Row(
                f"{_size(one)}, processes played: a task of it, its records, its report",
                f"{milliseconds:.2f} ms, {ends:.1f} s, {_seconds(one, 'report'):.1f} s of CPU; {_peak(one, 'report'):.0f} MB, "
                f"a page of {one['page'] / MB:.1f} MB",
            )
        )
    rows += [
        _growth("the same: exponent of time, the report left out", walks, "walk", "records", "written"),
        _growth("exponent of the report's time", walks, "report"),
        _growth_of_memory("exponent of memory, the report included", walks, "report"),
    ]
    return rows


def _told(cells: int, how: str) -> dict[str, Any]:
    figures: dict[str, Any] = said([sys.executable, "-P", "-m", "tests.bench._scaled", str(cells), how])
    return figures


def _size(one: dict[str, Any]) -> str:
    return f"{one['cells']:,} cells, {one['tasks']:,} tasks"


def _seconds(one: dict[str, Any], *steps: str) -> float:
    return sum(float(one["steps"][step]["s"]) for step in steps)


def _peak(one: dict[str, Any], step: str) -> float:
    return float(one["steps"][step]["peak"] - one["steps"]["cells"]["before"]) / MB


def _growth(what: str, told: list[dict[str, Any]], *steps: str) -> Row:
    return Row(what, f"{exponent([(one['tasks'], _seconds(one, *steps)) for one in told]):.2f}", bar=LINEAR)


def _growth_of_memory(what: str, told: list[dict[str, Any]], step: str) -> Row:
    return Row(what, f"{exponent([(one['tasks'], _peak(one, step)) for one in told]):.2f}", bar=LINEAR)


def exponent(points: list[tuple[float, float]]) -> float:
    """Of y ~ x ** exponent, from the smallest to the largest x."""
    (low, first), (high, last) = points[0], points[-1]
    return math.log(last / first) / math.log(high / low)

"""Savings: how much shorter a program's latency estimate would be if the Neural Engine took ops that are off it now."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ane_sweep.placement import costs, latency, path, work
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.work import Work

_LEAST_MS = 5e-4
_NEVER = float("inf")


@dataclass(frozen=True)
class Saving:
    """Milliseconds saved of the whole estimate."""

    ms: float
    whole_ms: float

    @property
    def is_any(self) -> bool:
        return self.ms >= _LEAST_MS

    def __str__(self) -> str:
        return f"saves about {self.ms:.2g} of {self.whole_ms:.3g} ms" if self.is_any else "saves no time by itself"


def saved_ms(
    chunks: Sequence[tuple[Sequence[Any], Work]], helped: Sequence[Any], chip: Chip, estimated_ms: float
) -> float:
    """Return the milliseconds saved with the helped rows on the Neural Engine and the path through all others chosen anew.

    `chunks` hold each program's rows (predict.OpRow) and its present work on each unit.
    """
    wanted = {id(row) for row in helped}
    works = [_work(rows, wanted, chip) if any(id(row) in wanted for row in rows) else before for rows, before in chunks]
    return estimated_ms - latency.total_ms(works, chip, latency.of_chip(chip))


def _work(rows: Sequence[Any], helped: set[int], chip: Chip) -> Work:
    units: list[str] = []
    transitions = 0
    for _, members in groupby(rows, key=lambda row: row.site.function):
        chosen, _ = path.choose([_costs(row, id(row) in helped) for row in members])
        units += chosen
        transitions += path.count_segments(chosen)[1]
    return work.work_of([row.site for row in rows], units, transitions, work.cache_bytes(chip.family))


def _costs(row: Any, is_helped: bool) -> tuple[float, float | None]:
    if is_helped:
        return _NEVER, costs.estimate_ms(row.site, "ane")
    return row.cpu_ms, None if row.site.nested else row.ane_ms

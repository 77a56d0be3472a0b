"""Estimates of a task's cost: memory (peaks.py), time (durations.py), and disk from parameter bytes.

A recorded peak of a task of similar size replaces the formula. Recorded durations scale it, as hosts differ in speed.
"""

import math
import platform
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import chain

from ane_sweep.bridge import recipes
from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.plan import Source
from ane_sweep.bridge.stages import STAGES
from ane_sweep.store.past import Past

History = Mapping[str, Sequence[Past]]  # by stage

GIB = 1 << 30
# coremltools 9.0 and torch 2.7.0 as installed; torch for Linux on x86 brings CUDA's libraries along
INSTALLED_BYTES = {
    "coremltools": 30_000_000,
    "torch": 5_600_000_000 if (sys.platform, platform.machine()) == ("linux", "x86_64") else 450_000_000,
}
_NEAREST = 9  # recorded durations that scale a rule


class Costs:
    """Estimates from one history, cached, as a thousand cells share a handful of sizes."""

    def __init__(self, history: History):
        self.memory_bytes, self.seconds = cache(partial(memory_bytes, history)), cache(partial(seconds, history))


def memory_bytes(history: History, stage: str, work: int, needed: int) -> int:
    """Return the expected peak of a task over `work` parameter bytes (fp32): the largest recorded peak of a task over at
    most twice as many and at least half, else that of an idle process plus the bytes that are `needed` (planner/peaks.py).
    """
    larger = ((entry.peak_bytes, max(work, 1) / max(entry.work, 1)) for entry in history.get(stage, ()))
    peaks = [peak * max(1.0, times) for peak, times in larger if peak and 0.5 <= times <= 2]
    return int(max(peaks, default=STAGES[stage].base_gib * GIB + needed))


def seconds(history: History, stage: str, rule_s: float, sort: str) -> float | None:
    """Return the expected wall seconds of a task whose rule gives `rule_s`, scaled by the recorded tasks of the same
    sort: those of this stage, else of all stages. None without a record.
    """
    for entries in (history.get(stage, ()), chain.from_iterable(history.values())):
        if seen := [(entry.rule_s, entry.seconds) for entry in entries if entry.sort == sort and entry.rule_s > 0]:
            return scale(rule_s, seen)
    return None


def scale(rule_s: float, seen: Iterable[tuple[float, float]]) -> float:
    """Return `rule_s` times the median ratio that tasks (rule, taken), oldest first, with the nearest rules have."""
    near = sorted(seen, key=lambda one: abs(math.log(one[0] / rule_s)), reverse=True)[-_NEAREST:]
    return rule_s * statistics.median(taken / rule for rule, taken in near)


def disk_bytes(stage: str, cell: Cell, source: Source, seq_len: int, params: Mapping[str, object]) -> int:
    """Return the bytes that a task will add to the cache: weights by the recipe or the compute dtype, outputs in fp32, or a package.

    params  `rows`: inputs whose outputs are kept, absent: the texts of the model's reference; `package`: of stage install
    """
    rows = params.get("rows")
    leaves, work, precision = STAGES[stage].leaves, source.parameter_bytes, cell.precision_settings
    if leaves == "packages":
        return INSTALLED_BYTES[str(params["package"]).partition("==")[0]]
    if leaves == "outputs":
        keys = ("vocab_size",) if cell.kind.causal else ("hidden_size", "n_embd", "dim")
        widths = (width for key in keys if isinstance(width := source.arch.get(key), int))
        count = rows if isinstance(rows, int) else cell.model_settings.texts.count
        return 4 * count * seq_len * next(widths, 0)
    if leaves == "nothing":
        return 0
    recipe = recipes.canonical(precision.weights) if STAGES[stage].compressed else None
    if recipe is not None and (bits := recipes.average_bits(recipe)):
        return int(work / 32 * bits)
    return work // (2 if precision.compute == "fp16" else 1)

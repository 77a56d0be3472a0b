"""Estimates of a task's cost: memory (peaks.py) and disk from parameter bytes, time from recorded tasks.

A recorded peak of a task of similar size replaces the formula. Time has no formula here:
without a record there is no estimate (None), and a caller that needs a figure takes the stage's guess and marks it as one.
"""

import platform
import statistics
import sys
from collections.abc import Mapping, Sequence

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
SIMILAR = 2.0  # a record counts for work up to this many times larger or smaller


def memory_bytes(stage: str, work: int, history: History, needed: int) -> int:
    """Return the expected peak of a task over `work` parameter bytes (fp32): the largest recorded peak of a similar
    task, else that of an idle process plus the bytes that are `needed` (planner/peaks.py).
    """
    peaks = [
        entry.peak_bytes * max(1.0, work / max(entry.work, 1))
        for entry in _similar(stage, work, history)
        if entry.peak_bytes
    ]
    return int(max(peaks, default=STAGES[stage].base_gib * GIB + needed))


def seconds(stage: str, work: int, history: History, sort: str) -> float | None:
    """Return the expected wall seconds: the median of similar tasks of the same sort, or None without one."""
    seen = [entry.seconds for entry in _similar(stage, work, history) if entry.seconds and entry.sort == sort]
    return statistics.median(seen) if seen else None


def sort_of(stage: str, cell: Cell, positions: int, is_check: bool) -> str:
    """Return the sort of a task: the facts, beside parameters, on which its duration depends most.

    A convolution takes many times longer than a transformer with as many parameters, and so does a longer input.
    """
    facts = [cell.model_settings.path or cell.family, f"{positions} positions", f"batch {cell.batch}"]
    if STAGES[stage].runs_program:
        facts += [f"numerics {cell.numerics}", *(["check"] if is_check else [])]
    return ", ".join(facts)


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


def _similar(stage: str, work: int, history: History) -> list[Past]:
    most = max(work, 1) * SIMILAR
    return [entry for entry in history.get(stage, ()) if work / SIMILAR <= max(entry.work, 1) <= most]

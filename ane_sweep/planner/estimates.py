"""What a task will cost, before it runs: memory and disk from parameter bytes, time from what was recorded.

The factors, in the stages' own declarations, were measured on Linux with coremltools 9.0 and torch 2.13
(ane_sweep/docs/figures.md); a recorded peak of a task of similar size replaces the factor. Time has no formula here:
without a record it is None, and whoever needs a figure all the same takes the stage's guess and says so.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ane_sweep.bridge.stages import STAGES
from ane_sweep.store.past import Past

History = Mapping[str, Sequence[Past]]  # by stage

GIB = 1 << 30
SIMILAR = 2.0  # a record counts for work up to this many times larger or smaller


def memory_bytes(stage: str, work: int, history: History) -> int:
    """Expected peak of a task over `work` parameter bytes (fp32): the largest similar peak seen, else the formula."""
    peaks = [
        entry.peak_bytes * max(1.0, work / max(entry.work, 1))
        for entry in _similar(stage, work, history)
        if entry.peak_bytes
    ]
    return int(max(peaks) if peaks else STAGES[stage].base_gib * GIB + STAGES[stage].per_byte * work)


def seconds(stage: str, work: int, history: History) -> float | None:
    """Expected wall seconds: the median of similar tasks, or None (unknown) when there is none."""
    seen = [entry.seconds for entry in _similar(stage, work, history) if entry.seconds]
    return statistics.median(seen) if seen else None


def disk_bytes(stage: str, params: Mapping[str, Any], work: int, arch: Mapping[str, Any], compute: str) -> int:
    """Bytes that a task will leave in the cache: weights of the recipe or in the compute dtype, or outputs in fp32."""
    leaves = STAGES[stage].leaves
    if leaves == "outputs":
        width = arch.get("vocab_size") if params.get("task") == "causal_lm" else _hidden(arch)
        return 4 * params["count"] * params["seq_len"] * int(width or 0)
    if leaves == "nothing":
        return 0
    if STAGES[stage].compressed and params.get("bits"):
        return int(work / 32 * params["bits"])
    return work // (2 if compute == "fp16" else 1)


def _hidden(arch: Mapping[str, Any]) -> int:
    return next((int(arch[key]) for key in ("hidden_size", "n_embd", "dim") if key in arch), 0)


def _similar(stage: str, work: int, history: History) -> list[Past]:
    most = max(work, 1) * SIMILAR
    return [entry for entry in history.get(stage, ()) if work / SIMILAR <= max(entry.work, 1) <= most]

"""Estimates of a task's cost: memory and disk from parameter bytes, time from recorded tasks.

The factors, in the stages' own declarations, were measured on Linux with coremltools 9.0 and torch 2.13
(tests/bench/FIGURES.md); a recorded peak of a task of similar size replaces the factor. Time has no formula here:
without a record there is no estimate (None), and a caller that needs a figure takes the stage's guess and marks it as one.
"""

import platform
import statistics
import sys
from collections.abc import Mapping, Sequence

from ane_sweep.bridge import families, recipes
from ane_sweep.bridge.cell import DECLARED, Cell
from ane_sweep.bridge.plan import Source
from ane_sweep.bridge.programs import DEFAULT
from ane_sweep.bridge.runtimes import traits
from ane_sweep.bridge.stages import STAGES
from ane_sweep.planner import sizing
from ane_sweep.planner.compressing import is_in_torch
from ane_sweep.store.past import Past

History = Mapping[str, Sequence[Past]]  # by stage

GIB = 1 << 30
# coremltools 9.0 and torch 2.7.0 as installed; torch for Linux on x86 brings CUDA's libraries along
INSTALLED_BYTES = {
    "coremltools": 30_000_000,
    "torch": 5_600_000_000 if (sys.platform, platform.machine()) == ("linux", "x86_64") else 450_000_000,
}
_BY_LAYER_FROM = GIB  # as worker/models/_turns.py has it
_KEPT = GIB // 2  # of weights in working form, as reference/constants.py has it
# As worker/grow/repeats.py has it, for blocks that are all alike; those that come in turns hold more at once.
_GROWN_FROM, _AT_ONCE = 9, 5
# 2.4 to 2.5 bytes a byte of these few, gpt2-large's and gpt2-xl's peaks say, where all blocks take 1.9. fp32, which is cast
# to nothing, took 1.4 of gpt2-medium's.
_MORE = {"fp16": 1.3, "fp32": 1.0}
# Of what all blocks take: a cache's two functions are joined with all their weights (gpt2-medium: 2.75 GiB).
_JOINED = 0.8
_WHOLE = 1.3  # of a conversion that holds every weight: gpt2 by coreai-opt took 1.85 GB, all told
SIMILAR = 2.0  # a record counts for work up to this many times larger or smaller


def memory_bytes(stage: str, work: int, history: History, held: int | None = None) -> int:
    """Return the expected peak of a task over `work` parameter bytes (fp32): the largest recorded peak of a similar
    task, else the formula over the bytes that are `held` at once.
    """
    peaks = [
        entry.peak_bytes * max(1.0, work / max(entry.work, 1))
        for entry in _similar(stage, work, history)
        if entry.peak_bytes
    ]
    formula = STAGES[stage].base_gib * GIB + STAGES[stage].per_byte * (work if held is None else held)
    return int(max(peaks, default=formula))


def held_bytes(stage: str, cell: Cell, work: int, arch: Mapping[str, object], runtime: object = None) -> int:
    """Return the bytes of parameters (fp32) that a task holds at once.

    Most tasks hold all of them. The reference runtime holds those that its budget keeps, and at most one further
    layer; its model of the Neural Engine (numerics=ane) holds all. A conversion that grows from a few blocks holds only
    those, and a reference of large weights one layer: a block, or the parameters outside all blocks. A user's own module
    and models with two lists of blocks (T5) count in full, an upper bound. Core AI's conversion and coreai-opt hold all.
    """
    by_op = STAGES[stage].runs_program and traits(runtime).streams and cell.numerics != "ane"
    if (STAGES[stage].holds == "all" and not by_op) or cell.kind.length == "caller" or cell.kind.blocks == "several":
        return work
    is_ours = cell.toolchain == DECLARED["toolchain"].plain and not is_in_torch(cell, DEFAULT)
    if STAGES[stage].holds == "few blocks" and not is_ours:
        return int(work * _WHOLE)
    layers, share = _blocks(cell, arch)
    if by_op:
        return min(work, _KEPT + int(work * max(share, 1 - share * layers))) if layers else work
    if STAGES[stage].holds == "a layer":
        return work if work < _BY_LAYER_FROM or not layers else int(work * max(share, 1 - share * layers))
    if layers < _GROWN_FROM:
        return work
    held = int(work * (1 - share * (layers - _AT_ONCE)) * _MORE[cell.precision_settings.compute])
    return max(held, int(work * _JOINED)) if cell.cache == "stateful" else min(held, work)


def _blocks(cell: Cell, arch: Mapping[str, object]) -> tuple[int, float]:
    """Return the number of blocks, and one block's share of all parameters."""
    task, serves = cell.model_settings.task, families.serves(cell.family)
    if serves is None:
        keys = cell.model_settings.arch_keys
        layers = arch.get(keys.layers) if keys else None
        return (layers, 1 / (layers + 1)) if isinstance(layers, int) else (0, 0.0)
    own = sizing.own(arch, serves, task)
    layers = own.get(serves.layers)
    if not isinstance(layers, int) or layers < _GROWN_FROM:
        return 0, 0.0
    whole, less = (sizing.estimate({**own, serves.layers: count}, serves, task) for count in (layers, layers - 1))
    return layers, (whole - less) / whole


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

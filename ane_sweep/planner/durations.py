"""Estimates of a task's seconds from the architecture alone, on the host that the factors were fitted on.

The factors here and in the declarations of stages and runtimes were fitted to processor seconds of one thread on Linux, on two
cores with AMX that other programs used, too, with coremltools 9.0 and torch 2.13 (`python -m tests.bench durations`). Stages and
runtimes of Core ML and of GPUs were not timed: theirs are guesses, until such tasks are recorded (planner/estimates.py).
"""

from collections.abc import Mapping

from ane_sweep.bridge import families, recipes
from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.plan import Source
from ane_sweep.bridge.runtimes import traits
from ane_sweep.bridge.stages import STAGES, Stage
from ane_sweep.mil import effects
from ane_sweep.planner import checks, peaks, scoring, sizing

Params = Mapping[str, object]
_PICTURE = 160  # positions that each weight of a convolutional net sees at 224 x 224; a model that is not built here may be one
_EACH_SCORE = 200  # multiply-adds of an attention score, its share of the values (with heads of 64) and its softmax
# of a call: of a layer, of its steps of decoding, of a billion multiply-adds in fp32 torch, of a million outputs compared
_LAYER_S, _DECODE_S, _TORCH_S, _OUTPUTS_S = 0.01, 0.45, 0.035, 0.06
# of a conversion: of each block that is traced, and of growing the others, both times so many in other variants and with a cache
_BLOCK_S, _GROW_S, _SPLIT, _CACHED = 0.4, 5.0, 1.8, 4.0
# of each rewrite that is tried, and of the proof of one layer for each billion multiply-adds: like layers are proven once
_REWRITE_S, _PROVE_S = 0.1, 0.15
# of recipes, times the seconds of a compression to linear codes; of reading each GB of codes, once what is kept, the rest each time
_TIMES = {"palettized": 0.6, "mixed": 3.0}
_LINEAR_S, _CODES_S, _KEPT_GB = 4.0, 7.5, 0.54


def rule_seconds(stage: str, cell: Cell, source: Source, work: int, gmacs: float, params: Params) -> float:
    """Return the seconds of a task over `work` bytes of parameters (fp32) whose model does `gmacs` billion multiply-adds."""
    declared, recipe = STAGES[stage], recipes.canonical(cell.precision_settings.weights) or {}
    seconds, gigabytes, again_s = declared.base_s, work / 1e9, 0.0
    if declared.holds == "few blocks":
        seconds += _trace_seconds(cell, source)
    elif declared.holds == "a weight":
        gigabytes *= _TIMES.get(str(recipe.get("kind")), 1.0) * (2.3 if recipe.get("activations") else 1.0)
    elif declared.runs_program and recipe:
        each_gb = _LINEAR_S if recipe["kind"] == "linear" else _CODES_S
        seconds, again_s = seconds + each_gb * min(gigabytes, _KEPT_GB), each_gb * max(0.0, gigabytes - _KEPT_GB)
    called = gmacs * work / max(1, source.parameter_bytes)  # copies are called in turns
    return seconds + declared.per_gb_s * gigabytes + _run_seconds(declared, cell, source, called, params, again_s)


def count_gmacs(cell: Cell, source: Source, positions: int) -> float:
    """Return the billions of multiply-adds of one prediction: each weight's at each position, and those of attention."""
    task, serves, kind = cell.model_settings.task, families.serves(cell.family), cell.kind
    own = sizing.own(source.arch, serves, task) if serves else source.arch
    weights, scores = source.parameter_bytes / 4, peaks.count_activations(cell, source.arch, positions)[1]
    if serves:  # a table that is looked up multiplies nothing
        looked_up = sizing.count_tables(own, serves, task) - (kind.leaves == "tokens" and cell.head == "all")
        weights -= looked_up * sizing.weigh_table(own, task)
    seen = positions / 9 if kind.leaves == "noise" else positions  # a U-Net halves its picture
    if kind.length == "caller" or "depths" in own:
        seen = _PICTURE
    return cell.batch * (weights * seen + source.layers * scores * _EACH_SCORE) / 1e9


def _count_lists(cell: Cell) -> int:
    """Return the number of blocks for each layer that a model declares: a U-Net's are as long as six."""
    return 6 if cell.kind.leaves == "noise" else 1 + cell.kind.pair


def _trace_seconds(cell: Cell, source: Source) -> float:
    """Return the seconds of a conversion for the blocks that it traces, in each list of blocks and each function."""
    grows = source.layers >= peaks.GROWN_FROM and cell.kind.blocks == "one list"
    traced = peaks.AT_ONCE if grows else source.layers or 12  # of a model that is not built here
    seconds = _BLOCK_S * traced * _count_lists(cell) + _GROW_S * grows
    return seconds * (1.0 if cell.variant == "original" else _SPLIT) * (1 if cell.cache == "none" else _CACHED)


def _run_seconds(stage: Stage, cell: Cell, source: Source, gmacs: float, params: Params, again_s: float) -> float:
    """Return the seconds of a task's predictions, or proofs. Each reads codes in `again_s`, or four together."""
    if isinstance(names := params.get("rewrites"), list):
        return len(names) * (_REWRITE_S + _layers_seconds(cell, source) + _PROVE_S * gmacs / max(1, source.layers))
    each = call_seconds(stage, cell, source, gmacs, params)
    if isinstance(policy := params.get("policy"), dict):  # and the first call, and one for the costs of ops
        each += again_s
        return float(min(each * (policy["warmup"] + policy["samples"]), policy["max_seconds"])) + 2 * each
    if isinstance(count := params.get("throughput"), int):
        return (each + again_s) * count
    each += again_s / 4 + peaks.count_activations(cell, source.arch, cell.seq_len)[0] * _OUTPUTS_S / 1e6
    if cell.cache == "stateful" and stage.runs_program:
        each += _DECODE_S * source.layers
    if "examples" in params or "score" in params:
        return each * scoring.rows(cell)
    return each * cell.model_settings.texts.count if stage.leaves == "outputs" else 0.0


def call_seconds(stage: Stage, cell: Cell, source: Source, gmacs: float, params: Params) -> float:
    """Return the seconds of one prediction by the stage's runtime, or by torch in a stage that runs no program."""
    rate = _TORCH_S
    if stage.runs_program:
        exact = "products" in (checks.numerics(cell)["effects"] or ())
        rate = effects.PRODUCT_NS if exact else traits(params.get("runtime")).per_gmac_s
    return rate * gmacs + _layers_seconds(cell, source)


def _layers_seconds(cell: Cell, source: Source) -> float:
    return _LAYER_S * source.layers * _count_lists(cell)

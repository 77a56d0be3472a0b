"""A recipe as passes of coremltools.optimize, over one load of the program: prune, then palettize and quantize."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from coremltools import _logger
from coremltools.converters.mil.mil import Builder
from coremltools.converters.mil.mil.passes.graph_pass import AbstractGraphPass
from coremltools.converters.mil.mil.passes.pass_registry import register_pass
from coremltools.models import MLModel
from coremltools.models.utils import _apply_graph_pass
from coremltools.optimize import coreml as cto
from coremltools.optimize.coreml import _quantization_passes as official

from ane_sweep.bridge import recipes
from ane_sweep.worker.compress import settings, streaming
from ane_sweep.worker.compress.palettes import Group, Palettes
from ane_sweep.worker.compress.settings import Resolved, Weight
from ane_sweep.worker.patches import replace_attributes
from ane_sweep.worker.programs.mlprogram.size import count_float_numbers, list_ops
from ane_sweep.worker.pymil import PymilProgram

PRUNED, TABLE = "_sparsified", "_palettized"  # what coremltools adds to the name of a constant that it compresses


class Compression(AbstractGraphPass):
    """A pass that applies a complete recipe. It sets `resolved`, `palettes` and `numbers`."""

    def __init__(self, recipe: recipes.Recipe, bits: dict[str, int] | None, scratch: streaming.Scratch):
        self.recipe, self.bits, self.scratch = recipe, bits, scratch
        self.palettes = Palettes()
        self.resolved = Resolved({}, {}, {}, [])
        self.numbers = 0

    def apply(self, prog: PymilProgram) -> None:
        weights = settings.list_weights(prog)
        self.numbers = count_float_numbers(prog)
        self.resolved = settings.resolve(weights, self.recipe, self.bits, self.scratch.give_back)
        known = self.resolved.settings
        chosen = [(weight, known[weight.name]) for weight in weights if weight.name in known]
        sparse = {w.name: _make_pruning_config(s) for w, s in chosen if s.get("sparsity") is not None}
        _run_pass(Prune, sparse, prog, joint=False)
        tables = sorted(((w, s) for w, s in chosen if s["kind"] == "palettized"), key=lambda one: one[0].name in sparse)
        scaled = _divide_by_scales([w for w, s in chosen if s.get("per_channel_scale")], prog, self.scratch)
        self.palettes.prepare(self._groups(tables, scaled, prog), max((w.value.size for w, _ in tables), default=0))
        for kind, make, through in (
            ("palettized", self._make_palettizing_config, official.palettize_weights),
            ("linear", _make_quantizing_config, official.linear_quantize_weights),
        ):
            configs = {w.name: make(s) for w, s in chosen if s["kind"] == kind}
            _run_pass(through, {n: c for n, c in configs.items() if n not in sparse}, prog, joint=False)
            _run_pass(through, {n + PRUNED: c for n, c in configs.items() if n in sparse}, prog, joint=True)
        _multiply_back(scaled, prog)

    def _make_palettizing_config(self, setting: recipes.Recipe) -> object:
        how = {"mode": "uniform", "nbits": setting["bits"]}
        if setting["mode"] == "kmeans":
            joint = setting["sparsity"] is not None
            how = {"mode": "custom", "lut_function": self.palettes.function(setting["bits"], joint)}
        return cto.OpPalettizerConfig(
            **how, granularity=setting["granularity"], group_size=setting.get("group_size", 0), weight_threshold=0
        )

    def _groups(
        self, chosen: list[tuple[Weight, recipes.Recipe]], scales: dict[str, np.ndarray], prog: PymilProgram
    ) -> Iterator[Group]:
        """Return the groups for which coremltools will request a table, in its order, with weights for their errors."""
        now = _index_ops(prog)
        for weight, setting in chosen:
            if setting["mode"] == "kmeans":
                joint = setting["sparsity"] is not None
                op = now[weight.name + PRUNED * joint]
                value = op.materialized_val_inference() if joint else np.asarray(op.outputs[0].val)
                parts = settings.split_groups(weight, setting, value)
                counts: list[np.ndarray] = []
                if weight.name in scales:
                    counts = settings.split_groups(weight, setting, np.square(scales[weight.name], dtype=np.float64))
                yield from ((part, setting["bits"], joint, count) for part, count in zip_longest(parts, counts))


@register_pass(namespace="ane_sweep")
class Prune(official.prune_weights):
    """Pruning by magnitude with the exact order statistic as threshold.

    coremltools 9.0 uses numpy's percentile of fp16 numbers, whose positions overflow beyond 65,504 numbers: larger fp16
    weights then stay dense or lose an arbitrary part.
    """

    @staticmethod
    def compress_by_magnitude(
        val: np.ndarray, target_sparsity: float, block_size: object = None, dim: object = None
    ) -> object:
        size = np.abs(val)
        last = min(max(round(target_sparsity * val.size), 1), val.size) - 1
        threshold = np.partition(size.reshape(-1), last)[last]
        return official.prune_weights._produce_sparse_param(np.where(size <= threshold, val.dtype.type(0), val))


def _index_ops(prog: PymilProgram) -> dict[str, Any]:
    """Return every op by name, those inside loops and branches included, which coremltools compresses as well."""
    return {op.name: op for op in list_ops(prog)}


def _divide_by_scales(weights: list[Weight], prog: PymilProgram, scratch: streaming.Scratch) -> dict[str, np.ndarray]:
    """Divide each weight by the largest magnitude of its output channel; return the scales by name.

    coremltools' own enable_per_channel_scale scales input channels instead (its documentation says output), which with
    grouped tables needs a table for each pair of group and input: more bytes than fp16.
    """
    found, ops = {}, _index_ops(prog)
    for weight in weights:
        axes = tuple(axis for axis in range(weight.value.ndim) if axis != weight.outputs)
        scales = np.maximum(weight.value.max(axes, keepdims=True), -weight.value.min(axes, keepdims=True))
        scales[scales == 0] = 1
        ops[weight.name].outputs[0]._sym_val.val = scratch.keep(np.divide(weight.value, scales))
        found[weight.name] = scales
    return found


def _multiply_back(scales: dict[str, np.ndarray], prog: PymilProgram) -> None:
    """Add ops that multiply by the scales again after each table.

    For targets before iOS26 coremltools then swaps table and scales, which takes a table per channel.
    """
    ops = _index_ops(prog)
    for name, scale in scales.items():
        table = ops[name + TABLE]
        (dense,), block = table.outputs, table.enclosing_block
        with block:
            first = next(after for op, after in pairwise(block.operations) if op is table)
            scaled = Builder.constexpr_blockwise_shift_scale(
                data=dense, scale=scale, before_op=first, name=table.name + "_scaled"
            )
        block.replace_uses_of_var_after_op(
            anchor_op=scaled.op, old_var=dense, new_var=scaled, no_check_var_types=True, force_replace=True
        )


def _make_pruning_config(setting: recipes.Recipe) -> object:
    zeros = recipes.parse_sparsity(setting["sparsity"])
    amount = {"target_sparsity": zeros} if isinstance(zeros, float) else {"n_m_ratio": zeros}
    return cto.OpMagnitudePrunerConfig(**amount, weight_threshold=0)


def _make_quantizing_config(setting: recipes.Recipe) -> object:
    return cto.OpLinearQuantizerConfig(
        mode={"symmetric": "linear_symmetric", "asymmetric": "linear"}[setting["mode"]],
        dtype=f"int{setting['bits']}",
        granularity=setting["granularity"],
        block_size=setting.get("block_size", 0),
        weight_threshold=0,
    )


def _run_pass(kind: Any, configs: dict[str, object], prog: PymilProgram, *, joint: bool) -> None:
    if configs:
        step = kind(cto.OptimizationConfig(op_name_configs=configs))
        step.joint_compression = joint
        step.apply(prog)


def apply(model: MLModel, recipe: recipes.Recipe, bits: dict[str, int] | None = None) -> tuple[MLModel, Compression]:
    """Return the compressed model and the applied pass. Raises ValueError if coremltools refuses the target as too old."""
    with streaming.stream_weights() as scratch:
        compression = Compression(recipe, bits, scratch)
        return _apply_graph_pass(model, compression, skip_model_load=True), compression


def load(path: Path) -> MLModel:
    """Read a package as coremltools' model, not loaded for prediction."""
    return MLModel(str(path), skip_model_load=True)


def load_program(path: Path) -> PymilProgram:
    """Read a package as coremltools' program, with every weight in memory."""
    program: PymilProgram = _apply_graph_pass(load(path), [], return_pymil_prog=True)
    return program


def quantize_activations(model: MLModel, ranges: dict[str, dict[str, float]]) -> MLModel:
    """Quantize activations to int8 by coremltools, with the ranges of stage `calibrate` instead of its own calibration."""
    from coremltools.optimize.coreml import _post_training_quantization as module

    found = {name: {end: np.float32(value) for end, value in ends.items()} for name, ends in ranges.items()}
    config = cto.OptimizationConfig(
        global_config=cto.OpLinearQuantizerConfig(mode="linear_symmetric"), op_type_configs={"add": None}
    )
    stats = (module, "_get_activation_calibration_stats", lambda *_: found)
    with streaming.stream_weights(), replace_attributes([stats]):
        return cto.linear_quantize_activations(model, config, [])


@contextmanager
def silence_warnings() -> Iterator[None]:
    """Silence coremltools' warning for each weight that it does not compress; our facts list those weights."""
    level = _logger.level
    _logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _logger.setLevel(level)

"""Ops of an fp16 program that stay in fp32, and the passes that coremltools runs over a program."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase

import coremltools as ct
import numpy as np
import torch
from coremltools.converters.mil.mil import Operation, Var

from ane_sweep.bridge.building import Options
from ane_sweep.worker import rewrites
from ane_sweep.worker.models._hf import MASKED
from ane_sweep.worker.patches import find_changes, replace_attributes

_FUSES_NORMS, _GUARDS = "common::fuse_layernorm_or_instancenorm", "common::guard_negative_gather_indices"
_PASSES = "coremltools.converters.mil.mil.passes.defs.quantization"
_CHECKED = (
    "gather",
    "gather_along_axis",
)  # coremltools asks whether the rows of their table have numbers that int16 holds


class Fp32Ops:
    """A selector of ops of an fp16 program that stay in fp32.

    options   the rewrites, which may select ops; with mask_dtype=fp32, the additions of a causal mask
    patterns  patterns for the op's type, name, or the name or type of its torch module
    """

    def __init__(self, options: Options, patterns: list[str]):
        self.options, self.patterns, self.kept = options, patterns, 0
        self.masks, self.selectors = options.mask_dtype == "fp32", rewrites.fp32_selectors(options)

    def keeps(self, op: Operation) -> bool:
        matched = any(
            fnmatchcase(name, p) for p in self.patterns for name in (op.op_type, op.name, *rewrites.module_names(op))
        )
        self.kept += matched
        matched = matched or (self.masks and op.op_type == "add" and any(map(_is_mask, (op.x, op.y))))
        return matched or any(selects(op) for selects in self.selectors)


def _is_mask(var: Var) -> bool:
    """Return True for a causal mask: a constant that hides keys, a product that makes one inside, or the input."""
    if var.val is not None:
        return bool(var.val.ndim == 4 and var.val.min() <= MASKED)
    if var.op is None or var.op.op_type != "mul":
        return bool(var.name == "causal_mask")
    factor = next((one.val for one in (var.op.x, var.op.y) if one.val is not None), None)
    return factor is not None and factor.size == 1 and bool(factor.min() <= MASKED)


def choose_precision(compute: str, wide: Fp32Ops) -> object:
    """Return coremltools' compute precision, with a selector if some ops stay in fp32."""
    if compute == "fp32":
        return ct.precision.FLOAT32
    if not (wide.patterns or wide.masks or wide.selectors):
        return ct.precision.FLOAT16
    return ct.transform.FP16ComputePrecision(op_selector=lambda op: not wide.keeps(op))


def keep_ids(module: torch.nn.Module) -> AbstractContextManager[None]:
    """Return a context in which whole numbers above 32,767 keep their value on the way to a table of more rows.

    coremltools 9.0 makes int16 of what `squeeze`, `gather` and `gather_nd` read, and looks at the range of indices alone.
    """
    rows = max((len(tensor) for tensor in (*module.parameters(), *module.buffers()) if tensor.dim()), default=0)

    def check(cast: Callable[..., bool]) -> Callable[..., bool]:
        return lambda own, op, name: name == "indices" and op.op_type in _CHECKED and cast(own, op, name)

    patches = [(_PASSES, "add_int16_cast", "should_cast_parameter", check)] if rows > np.iinfo(np.int16).max else []
    return replace_attributes(find_changes(patches))


def build_pipeline(wide: Fp32Ops, guarded: bool = False) -> ct.PassPipeline:
    """Return coremltools' default passes, without those that only take time here, and with two that save memory.

    guarded   keep the guards of indices: a user's own code may have negative ones
    """
    pipeline = ct.PassPipeline.DEFAULT
    # Guards gathers against negative indices with a compare, an add and a select before the embedding; token ids and
    # positions are never negative.
    left_out = rewrites.left_out_passes(set() if guarded else {_GUARDS}, wide.options)
    if any(fnmatchcase("reduce_mean", pattern) for pattern in wide.patterns):
        left_out.add(_FUSES_NORMS)  # only in single ops has a norm a mean to keep
    pipeline.remove_passes(left_out)
    # Hashes every weight. Once before the fp16 cast finds what is equal (tied embedding and head), once more runs in
    # the backend pipeline; the two in between find nothing new.
    again = [i for i, name in enumerate(pipeline.passes) if name == "common::const_deduplication"][1:]
    for index in reversed(again):
        pipeline.remove_pass(index)
    # GPT-2's Conv1D weights arrive as constants behind a transpose. Left there, the fp16 cast carries each through
    # fp16, fp32 and fp16 again: twice the model's size on top (gpt2-xl: 19.4 GB). Folded first, a view does.
    if "common::add_fp16_cast" in pipeline.passes:
        index = pipeline.passes.index("common::add_fp16_cast")
        pipeline.insert_pass(index, "common::dead_code_elimination")
        pipeline.insert_pass(index, "common::const_elimination")
    return pipeline

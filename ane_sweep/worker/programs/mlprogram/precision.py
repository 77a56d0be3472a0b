"""Ops of an fp16 program that stay in fp32, and the passes that coremltools runs over a program."""

from fnmatch import fnmatchcase

import coremltools as ct
import numpy as np
from coremltools.converters.mil.mil import Operation, Var

from ane_sweep.worker.models._hf import MASKED

_MODULES = ("TORCHSCRIPT_MODULE_TYPE", "TORCHSCRIPT_MODULE_NAME")


class Fp32Ops:
    """A selector of ops of an fp16 program that stay in fp32.

    norm      selects the means of the norms, or all ops that come from a norm's module
    patterns  select by type, name, or the name or type of a torch module that an op comes from
    masks     selects the additions of a causal mask
    """

    def __init__(self, norm: str, patterns: list[str], masks: bool = False):
        self.norm, self.patterns, self.masks, self.kept = norm, patterns, masks, 0

    @property
    def apart(self) -> bool:
        """Return True if a norm must stay in single ops: as set, or because only then it has a mean to keep."""
        return self.norm in ("fp16_ops", "fp32_mean") or any(
            fnmatchcase("reduce_mean", pattern) for pattern in self.patterns
        )

    def keeps(self, op: Operation) -> bool:
        names = [str(name) for source in op.scopes if source.name in _MODULES for name in op.scopes[source]]
        matched = any(fnmatchcase(name, p) for p in self.patterns for name in (op.op_type, op.name, *names))
        self.kept += matched
        matched = matched or (self.masks and op.op_type == "add" and any(map(_is_mask, (op.x, op.y))))
        if matched or self.norm in ("fp16", "fp16_ops"):
            return matched
        if self.norm == "fp32_mean":
            return bool(op.op_type == "reduce_mean")
        return op.op_type == "layer_norm" or any(name.endswith("Norm") for name in names)


def _is_mask(var: Var) -> bool:
    """Return True for a causal mask: a constant that hides keys, a product that makes one inside, or the input."""
    if var.val is not None:
        return bool(var.val.ndim == 4) and _hides(var.val)
    if var.op is None or var.op.op_type != "mul":
        return bool(var.name == "causal_mask")
    factor = next((one.val for one in (var.op.x, var.op.y) if one.val is not None), None)
    return factor is not None and factor.size == 1 and _hides(factor)


def _hides(values: np.ndarray) -> bool:
    return bool(values.min() <= MASKED)


def choose_precision(compute: str, wide: Fp32Ops) -> object:
    """Return coremltools' compute precision, with a selector if some ops stay in fp32."""
    if compute == "fp32":
        return ct.precision.FLOAT32
    if wide.norm in ("fp16", "fp16_ops") and not wide.patterns and not wide.masks:
        return ct.precision.FLOAT16
    return ct.transform.FP16ComputePrecision(op_selector=lambda op: not wide.keeps(op))


def build_pipeline(wide: Fp32Ops, guarded: bool = False) -> ct.PassPipeline:
    """Return coremltools' default passes, less those that only cost here, and two more that save memory.

    guarded   keep the guards of indices: a user's own code may have negative ones
    """
    pipeline = ct.PassPipeline.DEFAULT
    if wide.apart:
        pipeline.remove_passes({"common::fuse_layernorm_or_instancenorm"})
    # Guards gathers against negative indices with a compare, an add and a select before the embedding; token ids and
    # positions are never negative. index_guards=negative keeps them: programs of others have them.
    if not guarded:
        pipeline.remove_passes({"common::guard_negative_gather_indices"})
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

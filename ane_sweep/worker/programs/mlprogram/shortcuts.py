"""Shortcuts through coremltools' conversion that cannot change its result here.

coremltools 9.0 spends most of a language model's conversion on self-checks and copies of constants. `take_shortcuts()`
switches those off inside its context, each with its reason; a test compares the program with a plain conversion's. An
attribute that another coremltools lacks is not patched: then the conversion is slower, not wrong.
"""

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import ModuleType

import numpy as np
import torch
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.frontend.torch import ops
from coremltools.converters.mil.frontend.torch.converter import TranscriptionContext
from coremltools.converters.mil.frontend.torch.internal_graph import InternalTorchIRNode
from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY as registry
from coremltools.converters.mil.mil import Operation, Var

from ane_sweep.worker.grow import recipes
from ane_sweep.worker.patches import find_changes, replace_attributes

Check = Callable[[object, Var, Var], None]
FP16_MAX = 65504.0
_FLOAT = 6  # torch's number of fp32

_MIL = "coremltools.converters.mil.mil"


def take_shortcuts() -> AbstractContextManager[None]:
    """Return a context with every entry of PATCHES applied. Not thread-safe: a process converts one program at a time."""
    _count_names_anew()
    table = registry.name_to_func_mapping
    empty = {name: partial(_convert_empty, table[name]) for name in ("empty", "empty.memory_format") if name in table}
    return replace_attributes([*find_changes(PATCHES), (registry, "name_to_func_mapping", {**table, **empty})])


def _convert_empty(
    original: Callable[[object, InternalTorchIRNode], None], context: TranscriptionContext, node: InternalTorchIRNode
) -> None:
    """Convert torch.empty to zeros that take no memory: diffusers makes one of 1 GiB for each attention, and reads none."""
    size, *more = ops._get_inputs(context, node, min_expected=1)
    if isinstance(size, list) or not size.can_be_folded_to_const():
        original(context, node)
        return
    number = more[0].val if more and more[0] is not None else _FLOAT
    zero = torch.zeros((), dtype=ops.dtype_to_32bit(ops.NUM_TO_TORCH_DTYPE[number])).numpy()
    context.add(mb.const(val=np.broadcast_to(zero, tuple(size.val)), name=node.name))


def _count_names_anew() -> None:
    """Reset coremltools' counters, so that names begin again with `linear_0`.

    coremltools resets its counters when a conversion succeeds, but not when it fails, and never those of symbols.
    """
    importlib.import_module(f"{_MIL}.builder").Builder.name_count.clear()
    symbolic: ModuleType = importlib.import_module(f"{_MIL}.types.symbolic")
    symbolic.k_used_symbols.clear()
    vars(symbolic)["k_num_internal_syms"] = 0


def fits_fp16(values: np.ndarray) -> bool:
    """Return True if every number lies within fp16's range; False for NaN and infinities, which need the slow check."""
    # the plain numbers: this look must not count as reading a traced constant
    values = np.asarray(values).view(np.ndarray)
    return values.size == 0 or bool(values.max() <= FP16_MAX and values.min() >= -FP16_MAX)


def _make_overflow_check(original: "staticmethod[[Operation], bool]") -> "staticmethod[[Operation], bool]":
    # coremltools builds index arrays (8 bytes a number and axis) over every constant of every op. A maximum and a
    # minimum answer the same question; what they do not settle goes to the original.
    def fp16_overflow(op: Operation) -> bool:
        constants = [
            var.op.val.val
            for given in op.inputs.values()
            for var in (given if isinstance(given, (list, tuple)) else [given])
            if var.op is not None and var.op.op_type == "const" and var.is_tensor_or_scalar_of(dtype="fp32")
        ]
        return not all(fits_fp16(value) for value in constants) and bool(original.__func__(op))

    return staticmethod(fp16_overflow)


def _make_underflow_check(original: Check) -> Check:
    # The check is for epsilons and skips what has 400 numbers or more, but copies every tensor to count them.
    def check_underflow_to_zero(self: object, new_var: Var, var: Var) -> None:
        if np.size(var.val) < 400 and recipes.recipe_of(new_var.val) is None:  # else `narrowed` does the same
            original(self, new_var, var)

    return check_underflow_to_zero


def _make_no_op(original: object) -> Callable[..., None]:
    return lambda self, *args, **kwargs: None


def _make_short_text(original: object) -> Callable[[object], str]:
    return lambda self: type(self).__name__


PATCHES = (
    # 6.5 of 9.5 s of converting GPT-2, and its memory peak.
    (f"{_MIL}.passes.defs.quantization", "FP16ComputePrecision", "fp16_overflow", _make_overflow_check),
    (f"{_MIL}.passes.defs.quantization", "AbstractQuantizationPass", "_check_underflow_to_zero", _make_underflow_check),
    (f"{_MIL}.passes.defs.quantization", "FP16ComputePrecision", "_check_underflow_to_zero", _make_underflow_check),
    # A self-check of the whole program after each of 90 passes; convert runs it once, at the end.
    (f"{_MIL}.program", "Program", "validate", _make_no_op),
    # Marks what hangs on compressed constants, over the whole program after each pass; there are none in a fresh
    # conversion (convert refuses to go on if it finds one).
    (f"{_MIL}.block", "Block", "_propagate_nonreplaceable_vars", _make_no_op),
    # Debug messages that nobody reads, with the whole program printed into each.
    (f"{_MIL}.block", "Block", "__str__", _make_short_text),
    (f"{_MIL}.block", "Function", "__str__", _make_short_text),
    (f"{_MIL}.program", "Program", "__str__", _make_short_text),
)

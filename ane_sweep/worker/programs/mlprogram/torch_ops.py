"""Conversions of torch ops that coremltools 9.0 lacks, so that more modules of users can be converted.

They are ops of transformers' masks, resizing with a cubic or an antialiased filter, and writes into a part of a tensor
(`assignments.py`). They are registered while a user's own module is converted; ops that coremltools or the user's file
registers stay, except `_upsample_bilinear2d_aa`: coremltools 9.0 converts it without its filter, which changes numbers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.frontend.torch.converter import TranscriptionContext
from coremltools.converters.mil.frontend.torch.internal_graph import InternalTorchIRNode as Node
from coremltools.converters.mil.frontend.torch.ops import _get_inputs, expand
from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY as known
from coremltools.converters.mil.mil import Var, types

from ane_sweep.worker.programs.mlprogram import assignments

_WHOLE, _BOOL = (0, 1, 2, 3, 4), 11  # torch's numbers of its dtypes: c10/core/ScalarType.h


@contextmanager
def register_ops() -> Iterator[None]:
    """Register the missing conversions inside this context."""

    table = known.name_to_func_mapping
    ours = {assignments.KIND: assignments.convert_assignment, **_OPS}
    before = {name: table.get(name) for name in ours}
    wrong = {name for name in _WRONG if str(getattr(before.get(name), "__module__", "")).startswith("coremltools.")}
    table.update({name: ours[name] for name, theirs in before.items() if theirs is None or name in wrong})
    try:
        with assignments.replace_pass():
            yield
    finally:
        for name, theirs in before.items():
            table.pop(name, None)
            if theirs is not None:
                table[name] = theirs


def _convert_new_ones(context: TranscriptionContext, node: Node) -> None:
    """Convert x.new_ones(shape, dtype=None): all ones, in the given dtype or that of x."""

    x, shape, *more = _get_inputs(context, node)
    number = more[0].val if more and more[0] is not None else None
    whole = types.is_int(x.dtype) if number is None else int(number) in _WHOLE
    truth = types.is_bool(x.dtype) if number is None else int(number) == _BOOL
    value: np.generic = np.bool_(True) if truth else np.int32(1) if whole else np.float32(1)
    sizes = [one.val for one in shape] if isinstance(shape, list) else shape.val
    if sizes is not None and len(sizes) == 0:
        context.add(mb.const(val=value, name=node.name))
        return
    if isinstance(shape, list):
        shape = mb.concat(values=shape, axis=0) if None in sizes else [int(one) for one in sizes]
    context.add(mb.fill(shape=shape, value=value, name=node.name))


def _convert_diff(context: TranscriptionContext, node: Node) -> None:
    """Convert torch.diff(x, n=1, dim=-1, prepend=None, append=None): differences of neighbours along one axis."""

    x, times, axis, *ends = _get_inputs(context, node, expected=5)
    before, after = ends
    if times is not None and int(times.val) != 1:
        raise NotImplementedError("diff of a higher order")
    at = -1 if axis is None else int(axis.val)
    parts = [one for one in (before, x, after) if one is not None]
    whole = mb.concat(values=parts, axis=at) if len(parts) > 1 else x
    at %= whole.rank
    begin, end = [0] * whole.rank, [0] * whole.rank
    masked = [True] * whole.rank
    cut = [number != at for number in range(whole.rank)]
    begin[at], end[at] = 1, -1
    later = mb.slice_by_index(x=whole, begin=begin, end=[0] * whole.rank, begin_mask=cut, end_mask=masked)
    earlier = mb.slice_by_index(x=whole, begin=[0] * whole.rank, end=end, begin_mask=masked, end_mask=cut)
    context.add(mb.sub(x=later, y=earlier, name=node.name))


def _convert_resize(context: TranscriptionContext, node: Node) -> None:
    """Convert a resize of rows and columns exactly, as two products with constant matrices; sizes must be fixed."""

    x, sizes, corners, scales = _get_inputs(context, node, expected=4)
    high, wide = x.shape[-2:]
    if not all(isinstance(one, (int, np.integer)) for one in (high, wide)):
        raise NotImplementedError("height and width must not vary")
    scale: Sequence[float | None] = _read_constants(scales) or [None, None]
    size = _read_constants(sizes) or [int(high * scale[0]), int(wide * scale[1])]
    rows, columns = (
        _compute_matrix(node.kind, *one, bool(corners.val))
        for one in zip((int(high), int(wide)), map(int, size), scale)
    )
    x = mb.matmul(x=rows, y=x)
    context.add(mb.matmul(x=x, y=np.ascontiguousarray(columns.T), name=node.name))


def _read_constants(variables: Var | list[Var] | None) -> list[float] | None:
    """Return the constants in a list, or None if there is no list. Raises NotImplementedError for other values."""
    if variables is None:
        return None
    values = [variable.val for variable in variables] if isinstance(variables, list) else variables.val
    if values is None or any(value is None for value in values):
        raise NotImplementedError("the size that it resizes to must be a constant")
    return [value.item() for value in values]


def _compute_matrix(kind: str, size: int, made: int, scale: float | None, corners: bool) -> np.ndarray:
    """Return torch's resize of one axis as a matrix (made, size) in fp32: its results for the unit vectors."""

    units = torch.eye(size, dtype=torch.float64)[None, None]
    filtered = getattr(torch.ops.aten, kind)(units, [made, size], corners, scale, None)
    matrix: np.ndarray = filtered[0, 0].float().numpy()
    return matrix


_FILTERS = ("upsample_bicubic2d", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa")
_WRONG = ("_upsample_bilinear2d_aa",)
_OPS = {
    "new_ones": _convert_new_ones,
    "diff": _convert_diff,
    "broadcast_to": expand,
    **dict.fromkeys(_FILTERS, _convert_resize),
}

"""Ops of torch that coremltools 9.0 lacks and transformers' masks need, so that any of its models can be converted.

They are there while a conversion of the user's own module runs; one that coremltools or the user's file registers stays.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_WHOLE, _BOOL = (0, 1, 2, 3, 4), 11  # torch's numbers of its dtypes: c10/core/ScalarType.h


@contextmanager
def registered() -> Iterator[None]:
    """Add those that are not there for the duration."""
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY as known

    added = {name: made for name, made in _OPS.items() if name not in known}
    known.name_to_func_mapping.update(added)
    try:
        yield
    finally:
        for name in added:
            known.name_to_func_mapping.pop(name, None)


def _new_ones(context: Any, node: Any) -> None:
    """x.new_ones(shape, dtype=None): all ones, of the dtype or that of x."""
    import numpy as np
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs
    from coremltools.converters.mil.mil import types

    x, shape, *more = _get_inputs(context, node)
    number = more[0].val if more and more[0] is not None else None
    whole = types.is_int(x.dtype) if number is None else int(number) in _WHOLE
    truth = types.is_bool(x.dtype) if number is None else int(number) == _BOOL
    value: Any = np.bool_(True) if truth else np.int32(1) if whole else np.float32(1)
    sizes = [one.val for one in shape] if isinstance(shape, list) else shape.val
    if sizes is not None and len(sizes) == 0:
        context.add(mb.const(val=value, name=node.name))
        return
    if isinstance(shape, list):
        shape = mb.concat(values=shape, axis=0) if None in sizes else [int(one) for one in sizes]
    context.add(mb.fill(shape=shape, value=value, name=node.name))


def _diff(context: Any, node: Any) -> None:
    """torch.diff(x, n=1, dim=-1, prepend=None, append=None): neighbours' differences along one axis."""
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs

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


_OPS = {"new_ones": _new_ones, "diff": _diff}

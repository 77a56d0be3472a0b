"""Numbers that Python reads while a module is traced: by them it may do otherwise in a block that is not converted.

A run without numbers (calls.py) does not show that where the module looks first whether there are any, or whether it is traced.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from ane_sweep.worker.grow.sequence import Unlike

_READING = {
    "item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__", "__repr__",
    "__format__", "is_nonzero", "equal", "allclose", "data_ptr", "untyped_storage", "storage", "__reduce_ex__",
}  # fmt: skip
_SHAPES = {"size", "shape", "numel", "nelement", "__len__", "dim", "ndim", "stride"}  # tensors, too, in a trace


class _Reads(TorchFunctionMode):
    """Note which call read a floating point tensor, or one made of such."""

    def __init__(self) -> None:
        super().__init__()
        self.found = ""
        self.made = WeakIdKeyDictionary()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        is_of_numbers = any(one.is_floating_point() or one in self.made for one in given)
        name = func.__self__.__name__ if func.__name__ == "__get__" else func.__name__
        if is_of_numbers and name in _READING:
            self.found = self.found or name
        result = func(*args, **(kwargs or {}))
        if is_of_numbers and name not in _SHAPES:
            self.made.update({one: True for one in tree_leaves(result) if isinstance(one, Tensor)})
        return result


def refusing(trace: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch.jit.trace so that it raises Unlike after a run that has read numbers: the module itself may catch errors."""

    def traced(*given: Any, **named: Any) -> Any:
        with _Reads() as reads:
            result = trace(*given, **named)
        if reads.found:
            raise Unlike(f"it reads the numbers of a tensor as it runs ({reads.found})")
        return result

    return traced


@contextmanager
def as_if_traced() -> Iterator[None]:
    """While this is open, a module that asks learns that it is traced."""
    is_tracing = torch._C._is_tracing
    torch._C._is_tracing = lambda: True
    try:
        yield
    finally:
        torch._C._is_tracing = is_tracing

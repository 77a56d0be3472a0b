"""A check for Python code that reads a tensor's numbers during a trace, and so may act differently in other blocks.

A run without numbers (calls.py) misses such code if the module first tests for numbers, or for a trace. Only the
reading calls are patched: torch names values after variables of the calling frame, so that a dispatch mode in between
would change names.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from ane_sweep.worker.grow.sequence import Unlike
from ane_sweep.worker.patches import replace_attributes

_METHODS = (
    "item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__",
    "is_nonzero", "equal", "allclose", "data_ptr", "untyped_storage",
)  # fmt: skip
_FUNCTIONS = ("equal", "allclose", "is_nonzero")


def refuse_reading(trace: Callable[..., object]) -> Callable[..., object]:
    """Return torch.jit.trace wrapped to raise Unlike after a run that read numbers; an error during the run could be
    caught by the module.
    """

    def traced(*given: object, **named: object) -> object:
        found: list[str] = []
        readers = [(Tensor, name) for name in _METHODS] + [(torch, name) for name in _FUNCTIONS]
        with replace_attributes([(one, name, _wrap_reader(getattr(one, name), name, found)) for one, name in readers]):
            result = trace(*given, **named)
        if found:
            raise Unlike(f"it reads the numbers of a tensor as it runs ({found[0]})")
        return result

    return traced


def _wrap_reader(original: Callable[..., object], name: str, found: list[str]) -> Callable[..., object]:
    def reading(tensor: Tensor, *given: object, **named: object) -> object:
        if _holds_numbers(tensor):
            found.append(name)
        return original(tensor, *given, **named)

    return reading


def _holds_numbers(tensor: Tensor) -> bool:
    """Return False for integers that the trace computed from sizes alone, or that are outside the trace."""
    if tensor.is_floating_point():
        return True
    native: Any = torch._C  # whose types do not name this function
    left: list[torch._C.Value | None] = [native._get_value_trace(tensor) if native._is_tracing() else None]
    seen = set()
    while left:
        value = left.pop()
        node = value.node() if value is not None else None
        if node is None or node in seen or node.kind() == "aten::size":
            continue
        seen.add(node)
        if node.kind() in ("prim::Param", "prim::GetAttr", "prim::TracedAttr"):
            return True
        left.extend(node.inputs())
    return False


def pretend_tracing() -> AbstractContextManager[None]:
    """Make torch report that it is tracing, inside this context."""
    return replace_attributes([(torch._C, "_is_tracing", lambda: True)])

"""A check for Python code that reads a tensor's numbers during a trace, and so may act differently in other blocks.

A run without numbers (calls.py) misses such code if the module first tests for numbers, or for a trace. Only the calls that
read are patched: torch names values after variables of the calling frame, so that a dispatch mode in between would change names.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ane_sweep.worker.grow.sequence import Unlike

_METHODS = (
    "item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__",
    "is_nonzero", "equal", "allclose", "data_ptr", "untyped_storage",
)  # fmt: skip
_FUNCTIONS = ("equal", "allclose", "is_nonzero")


def refuse_reading(trace: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch.jit.trace so that it raises Unlike after a run that read numbers; during the run the module could catch it."""

    def traced(*given: Any, **named: Any) -> Any:
        with _note_reads() as found:
            result = trace(*given, **named)
        if found:
            raise Unlike(f"it reads the numbers of a tensor as it runs ({found[0]})")
        return result

    return traced


@contextmanager
def _note_reads() -> Iterator[list[str]]:
    """Collect the names of calls that read a tensor's numbers, while this is open."""
    found: list[str] = []
    owners = [(Tensor, name) for name in _METHODS] + [(torch, name) for name in _FUNCTIONS]
    undo = [(owner, name, vars(owner).get(name)) for owner, name in owners]
    try:
        for owner, name in owners:
            setattr(owner, name, _wrap_reader(getattr(owner, name), name, found))
        yield found
    finally:
        for owner, name, original in undo:
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def _wrap_reader(original: Callable[..., Any], name: str, found: list[str]) -> Callable[..., Any]:
    def reading(tensor: Tensor, *given: Any, **named: Any) -> Any:
        if _holds_numbers(tensor):
            found.append(name)
        return original(tensor, *given, **named)

    return reading


def _holds_numbers(tensor: Tensor) -> bool:
    """Return False for whole numbers that the trace computed from sizes alone, or that lie outside of the trace."""
    if tensor.is_floating_point():
        return True
    left, seen = [_traced(tensor)], set()
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


def _traced(tensor: Tensor) -> Any:
    native: Any = torch._C  # whose types do not name this function
    return native._get_value_trace(tensor) if native._is_tracing() else None


@contextmanager
def pretend_tracing() -> Iterator[None]:
    """Make torch report that it is tracing, while this is open."""
    is_tracing = torch._C._is_tracing
    torch._C._is_tracing = lambda: True
    try:
        yield
    finally:
        torch._C._is_tracing = is_tracing

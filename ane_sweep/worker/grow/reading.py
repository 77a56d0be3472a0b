"""Numbers that Python reads while a module is traced: by them it may do otherwise in a block that is not converted.

A run without numbers (calls.py) does not show that where the module looks first whether there are any, or whether it is traced.
Only calls that read are looked at: torch names what is made after variables of the frame that calls it, so that a mode in
between would change names.
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


def refusing(trace: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch.jit.trace so that it raises Unlike after a run that has read numbers: the module itself may catch errors."""

    def traced(*given: Any, **named: Any) -> Any:
        with _noting() as found:
            result = trace(*given, **named)
        if found:
            raise Unlike(f"it reads the numbers of a tensor as it runs ({found[0]})")
        return result

    return traced


@contextmanager
def _noting() -> Iterator[list[str]]:
    """Collect, while this is open, names of calls that read a tensor's numbers."""
    found: list[str] = []
    owners = [(Tensor, name) for name in _METHODS] + [(torch, name) for name in _FUNCTIONS]
    undo = [(owner, name, vars(owner).get(name)) for owner, name in owners]
    try:
        for owner, name in owners:
            setattr(owner, name, _noted(getattr(owner, name), name, found))
        yield found
    finally:
        for owner, name, original in undo:
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def _noted(original: Callable[..., Any], name: str, found: list[str]) -> Callable[..., Any]:
    def reading(tensor: Tensor, *given: Any, **named: Any) -> Any:
        if _holds_numbers(tensor):
            found.append(name)
        return original(tensor, *given, **named)

    return reading


def _holds_numbers(tensor: Tensor) -> bool:
    """Return True unless the tensor was made in this trace of sizes alone, or outside of it of whole numbers."""
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
def as_if_traced() -> Iterator[None]:
    """While this is open, a module that asks learns that it is traced."""
    is_tracing = torch._C._is_tracing
    torch._C._is_tracing = lambda: True
    try:
        yield
    finally:
        torch._C._is_tracing = is_tracing

"""Tensors that are not there yet: shape and dtype now, values when asked for, and again when asked for again.

What torch does with one gives another, so that a family builds its module of them as of any tensors: views, stacks, scales.
What needs numbers (`item`, an index made of them) makes them.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

# Tensors of a source that are kept, and bytes of them: a stacked projection is asked for once a part.
_KEPT, _BYTES = 4, 256 << 20


USE = threading.local()  # `.refused`: in a thread that has this set, nothing may be done with a lazy tensor


class Lazy(Tensor):
    """`meta` says what it looks like, `make` gives it."""

    meta: Tensor
    make: Callable[[], Tensor]

    @staticmethod
    def __new__(cls, meta: Tensor, make: Callable[[], Tensor]):
        made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, meta.shape, strides=meta.stride(), storage_offset=meta.storage_offset(), dtype=meta.dtype, device="cpu"
        )
        made.meta, made.make = meta, make
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Lazy({list(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        named = kwargs or {}
        if getattr(USE, "refused", False):
            raise NotImplementedError(f"{func} of a tensor whose numbers are not there yet")

        def real() -> Any:
            return func(*tree_map(made, args), **tree_map(made, named))

        if func is torch.ops.aten._local_scalar_dense.default:
            return real()
        if func._schema.is_mutable:
            raise NotImplementedError(f"{func} changes a tensor whose numbers are not there yet")
        looks = func(*tree_map(_meta, args), **tree_map(_meta, _on_meta(named)))
        if isinstance(looks, Tensor):
            return cls(looks, real)
        if isinstance(looks, (list, tuple)):
            return type(looks)(cls(one, lambda i=i: real()[i]) for i, one in enumerate(looks))
        return looks


def _meta(value: Any) -> Any:
    if isinstance(value, Lazy):
        return value.meta
    return value.to("meta") if isinstance(value, Tensor) else value


def _on_meta(named: dict[str, Any]) -> dict[str, Any]:
    return named | {"device": torch.device("meta")} if named.get("device") is not None else named


def made(value: Any) -> Any:
    """A lazy tensor's numbers; anything else as it is."""
    return value.make() if isinstance(value, Lazy) else value


def state(shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """fp32 tensors by name that `read` brings when they are asked for, by several threads it may be."""
    kept: OrderedDict[str, Tensor] = OrderedDict()
    reading, changing = {name: threading.Lock() for name in shapes}, threading.Lock()

    def get(name: str) -> Tensor:
        with reading[name]:
            found = kept.get(name)
            if found is None:
                found = read(name)
                with changing:
                    kept[name] = found
                    while len(kept) > _KEPT or (len(kept) > 1 and sum(one.nbytes for one in kept.values()) > _BYTES):
                        kept.popitem(last=False)
            return found

    return {
        name: Lazy(torch.empty(shape, device="meta"), lambda name=name: get(name)) for name, shape in shapes.items()
    }

"""Lazy tensors: shape and dtype are known at once; the values are computed each time they are requested.

torch's operations on a lazy tensor return another, so that a family can build its module from them: views, stacks,
scales. Operations that need numbers (`item`, an index) compute them.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

# How many tensors of a source, and bytes of them, stay in memory: a stacked projection is read once for each part.
_KEPT, _BYTES = 4, 256 << 20

USE = threading.local()  # a thread that sets `.refused` may not compute with lazy tensors


class Lazy(Tensor):
    """A tensor that looks like `meta`; calling `make` computes its values."""

    meta: Tensor
    make: Callable[[], Tensor]

    @staticmethod
    def __new__(cls, meta: Tensor, make: Callable[[], Tensor]) -> "Lazy":
        made: Lazy = Tensor._make_wrapper_subclass(
            cls,
            meta.shape,
            strides=meta.stride(),
            storage_offset=meta.storage_offset(),
            dtype=meta.dtype,
            device=torch.device("cpu"),
        )
        made.meta, made.make = meta, make
        return made

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Lazy({list(self.shape)})"

    @classmethod
    def __torch_dispatch__(
        cls,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        named = kwargs or {}
        if getattr(USE, "refused", False):
            raise NotImplementedError(f"{func} of a tensor whose numbers are not there yet")

        def compute() -> Any:  # a tensor, or several
            return func(*tree_map(_to_values, args), **tree_map(_to_values, named))

        if func is torch.ops.aten._local_scalar_dense.default:
            return compute()
        if func._schema.is_mutable:
            raise NotImplementedError(f"{func} changes a tensor whose numbers are not there yet")
        moved = named | {"device": torch.device("meta")} if named.get("device") is not None else named
        looks = func(*tree_map(_to_meta, args), **tree_map(_to_meta, moved))
        if isinstance(looks, Tensor):
            return cls(looks, compute)
        if isinstance(looks, (list, tuple)):
            return type(looks)(cls(part, partial(lambda i: compute()[i], i)) for i, part in enumerate(looks))
        return looks


def _to_meta(value: object) -> object:
    if isinstance(value, Lazy):
        return value.meta
    return value.to("meta") if isinstance(value, Tensor) else value


def materialise(tensor: Tensor) -> Tensor:
    """Return the values of a lazy tensor, and any other tensor unchanged."""
    return tensor.make() if isinstance(tensor, Lazy) else tensor


def _to_values(value: object) -> object:
    return materialise(value) if isinstance(value, Tensor) else value


def make_lazy_state(shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """Return lazy fp32 tensors by name; `read` reads each on request, also from several threads."""
    cache: OrderedDict[str, Tensor] = OrderedDict()
    reading, changing = {name: threading.Lock() for name in shapes}, threading.Lock()

    def get(name: str) -> Tensor:
        with reading[name]:
            tensor = cache.get(name)
            if tensor is None:
                tensor = read(name)
                with changing:
                    cache[name] = tensor
                    while len(cache) > _KEPT or (len(cache) > 1 and sum(t.nbytes for t in cache.values()) > _BYTES):
                        cache.popitem(last=False)
            return tensor

    return {name: Lazy(torch.empty(shape, device="meta"), partial(get, name)) for name, shape in shapes.items()}

"""Where constants learn what they are made of: as coremltools' torch frontend takes the module's tensors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ane_sweep.worker.grow import reading, recipes


class _Known:
    """Recipes by where a tensor lies."""

    def __init__(self, module: torch.nn.Module):
        self.recipes: dict[Any, Any] = {}
        self.alive: list[torch.Tensor] = []  # so that a place stays its own
        self.away: dict[Any, Any] = {}  # arrays that torch was given, until they are a constant again
        tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        for name, tensor in tensors:
            self.recipes.setdefault(_place(tensor), recipes.Leaf(name))

    def of(self, tensor: Any) -> Any:
        real = isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
        return self.recipes.get(_place(tensor)) if real else None

    def lend(self, tensor: torch.Tensor, array: Any) -> None:
        """Keep what a tensor was made of, as torch gives the same memory back where it leaves the numbers as they are."""
        self.alive.append(tensor)
        self.recipes[_place(tensor)] = recipes.recipe_of(array)
        self.away[_place(tensor)] = array

    def take_back(self, tensor: torch.Tensor) -> Any:
        recipe = self.of(tensor)
        if recipe is not None:
            self.away.pop(_place(tensor), None)
        return recipe


def _place(tensor: torch.Tensor) -> Any:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


@contextmanager
def remembered(module: torch.nn.Module) -> Iterator[None]:
    """While this is open, what is converted of `module` makes constants that remember its tensors' names."""
    from coremltools.converters.mil.frontend.torch.converter import TorchConverter
    from coremltools.converters.mil.mil import Builder
    from coremltools.converters.mil.mil.passes.defs import optimize_conv

    known = _Known(module)
    patches = (
        (TorchConverter, "_add_const", _adding(known, TorchConverter._add_const, Builder.const)),
        (torch, "tensor", _through_torch(known, torch.tensor)),
        (torch.jit, "trace", reading.refusing(torch.jit.trace)),
        (Builder, "const", staticmethod(_const(known, Builder.const))),
        *(
            (one, "apply", _by_channel(one.apply))
            for one in (optimize_conv.fuse_conv_batchnorm, optimize_conv.fuse_conv_scale)
        ),
    )
    undo = [(owner, name, vars(owner)[name]) for owner, name, _ in patches]
    try:
        for owner, name, made in patches:
            setattr(owner, name, made)
        yield
        recipes.observe(list(known.away.values()))
    finally:
        for owner, name, original in undo:
            setattr(owner, name, original)


def _adding(known: _Known, original: Callable[..., Any], const: Callable[..., Any]) -> Callable[..., Any]:
    def add(self: Any, name: str, val: Any) -> None:
        leaf = known.of(val)
        if leaf is None:
            original(self, name, val)
        else:
            self.context.add(const(val=recipes.traced(np.asarray(val.detach().numpy()), leaf), name=name))

    return add


def _through_torch(known: _Known, original: Callable[..., Any]) -> Callable[..., Any]:
    """The frontend casts constants by way of torch."""

    def tensor(data: Any, *given: Any, **named: Any) -> torch.Tensor:
        made: torch.Tensor = original(data, *given, **named)
        if recipes.recipe_of(data) is not None:
            known.lend(made, data)
        return made

    return tensor


def _const(known: _Known, original: Callable[..., Any]) -> Callable[..., Any]:
    def const(**named: Any) -> Any:
        value = named.get("val")
        if known.alive and type(value) is np.ndarray and value.dtype == np.float32 and value.flags.writeable:
            recipe = known.take_back(torch.from_numpy(value))
            named |= {"val": recipes.traced(value, recipe)} if recipe is not None else {}
        return original(**named)

    return const


def _by_channel(original: Callable[..., Any]) -> Callable[..., Any]:
    """A pass that folds norms and scales into a convolution a channel at a time."""

    def apply(self: Any, program: Any) -> None:
        with recipes.channel_by_channel():
            original(self, program)

    return apply

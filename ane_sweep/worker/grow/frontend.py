"""Patches of coremltools' torch frontend that attach recipes to the constants it makes from a module's tensors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ane_sweep.worker.grow import reading, recipes


class _Known:
    """The recipes of tensors, by address, shape and strides."""

    def __init__(self, module: torch.nn.Module):
        self.recipes: dict[Any, Any] = {}
        self.alive: list[torch.Tensor] = []  # so that no address is used twice
        self.away: dict[Any, Any] = {}  # arrays that torch was given, until they are a constant again
        tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        for name, tensor in tensors:
            self.recipes.setdefault(_place(tensor), recipes.Leaf(name))

    def find_recipe(self, tensor: Any) -> Any:
        real = isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
        return self.recipes.get(_place(tensor)) if real else None

    def lend(self, tensor: torch.Tensor, array: Any) -> None:
        """Remember the recipe of a tensor: torch returns the same memory if a cast changes no number."""
        self.alive.append(tensor)
        self.recipes[_place(tensor)] = recipes.recipe_of(array)
        self.away[_place(tensor)] = array

    def take_back(self, tensor: torch.Tensor) -> Any:
        recipe = self.find_recipe(tensor)
        if recipe is not None:
            self.away.pop(_place(tensor), None)
        return recipe


def _place(tensor: torch.Tensor) -> Any:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


@contextmanager
def remember_tensors(module: torch.nn.Module) -> Iterator[None]:
    """Make constants remember the names of the tensors of `module`, while this is open."""
    from coremltools.converters.mil.frontend.torch.converter import TorchConverter
    from coremltools.converters.mil.mil import Builder
    from coremltools.converters.mil.mil.passes.defs import optimize_conv

    known = _Known(module)
    patches = (
        (TorchConverter, "_add_const", _wrap_add_const(known, TorchConverter._add_const, Builder.const)),
        (torch, "tensor", _wrap_torch_tensor(known, torch.tensor)),
        (torch.jit, "trace", reading.refuse_reading(torch.jit.trace)),
        (Builder, "const", staticmethod(_wrap_const(known, Builder.const))),
        *(
            (one, "apply", _fold_by_channel(one.apply))
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


def _wrap_add_const(known: _Known, original: Callable[..., Any], const: Callable[..., Any]) -> Callable[..., Any]:
    def add(self: Any, name: str, val: Any) -> None:
        leaf = known.find_recipe(val)
        if leaf is None:
            original(self, name, val)
        else:
            self.context.add(const(val=recipes.traced(np.asarray(val.detach().numpy()), leaf), name=name))

    return add


def _wrap_torch_tensor(known: _Known, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch.tensor so that its results remember recipes, since the frontend casts constants by way of torch."""

    def tensor(data: Any, *given: Any, **named: Any) -> torch.Tensor:
        made: torch.Tensor = original(data, *given, **named)
        if recipes.recipe_of(data) is not None:
            known.lend(made, data)
        return made

    return tensor


def _wrap_const(known: _Known, original: Callable[..., Any]) -> Callable[..., Any]:
    def const(**named: Any) -> Any:
        value = named.get("val")
        if known.alive and type(value) is np.ndarray and value.dtype == np.float32 and value.flags.writeable:
            recipe = known.take_back(torch.from_numpy(value))
            named |= {"val": recipes.traced(value, recipe)} if recipe is not None else {}
        return original(**named)

    return const


def _fold_by_channel(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a pass, which folds norms and scales into a convolution a channel at a time, so that it keeps recipes."""

    def apply(self: Any, program: Any) -> None:
        with recipes.remember_single_numbers():
            original(self, program)

    return apply

"""Patches of coremltools' torch frontend that attach recipes to the constants it makes from a module's tensors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from ane_sweep.worker.grow import reading, recipes
from ane_sweep.worker.grow.recipes import Origin
from ane_sweep.worker.grow.repeats import name_tensors
from ane_sweep.worker.patches import replace_attributes

Function = Callable[..., object]
Place = tuple[int, tuple[int, ...], tuple[int, ...]]  # address, shape, strides


class _Known:
    """The recipes of tensors, by memory address."""

    def __init__(self, module: torch.nn.Module):
        self.recipes: dict[Place, Origin] = {}
        self.alive: list[torch.Tensor] = []  # so that no address is used twice
        self.away: dict[Place, object] = {}  # arrays that torch was given, until they are a constant again
        for name, tensor in name_tensors(module).items():
            self.recipes.setdefault(_place(tensor), recipes.Leaf(name))

    def find_recipe(self, tensor: object) -> Origin | None:
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            return self.recipes.get(_place(tensor))
        return None


def _place(tensor: torch.Tensor) -> Place:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


@contextmanager
def remember_tensors(module: torch.nn.Module) -> Iterator[None]:
    """Let constants remember the names of the tensors of `module`, inside this context."""
    from coremltools.converters.mil.frontend.torch.converter import TorchConverter
    from coremltools.converters.mil.mil import Builder
    from coremltools.converters.mil.mil.passes.defs import optimize_conv

    known = _Known(module)
    patches = [
        (TorchConverter, "_add_const", _wrap_add_const(known, TorchConverter._add_const, Builder.const)),
        (torch, "tensor", partial(_make_tensor, known, torch.tensor)),
        (torch.jit, "trace", reading.refuse_reading(torch.jit.trace)),
        (Builder, "const", staticmethod(partial(_add_const, known, Builder.const))),
        *(
            (one, "apply", _fold_by_channel(one.apply))
            for one in (optimize_conv.fuse_conv_batchnorm, optimize_conv.fuse_conv_scale)
        ),
    ]
    with replace_attributes(patches):
        yield
        recipes.observe(*known.away.values())


def _wrap_add_const(known: _Known, original: Function, const: Function) -> Function:
    def add(self: Any, name: str, val: torch.Tensor) -> None:
        leaf = known.find_recipe(val)
        if leaf is None:
            original(self, name, val)
        else:
            self.context.add(const(val=recipes.traced(np.asarray(val.detach().numpy()), leaf), name=name))

    return add


def _make_tensor(
    known: _Known, original: Callable[..., torch.Tensor], data: object, *given: object, **named: object
) -> torch.Tensor:
    """Call torch.tensor and keep the recipe of its result, since the frontend casts constants with it.

    torch returns the same memory if a cast changes no number.
    """
    made = original(data, *given, **named)
    if (recipe := recipes.recipe_of(data)) is not None:
        known.alive.append(made)
        known.recipes[_place(made)] = recipe
        known.away[_place(made)] = data
    return made


def _add_const(known: _Known, original: Function, **named: object) -> object:
    value = named.get("val")
    if known.alive and type(value) is np.ndarray and value.dtype == np.float32 and value.flags.writeable:
        tensor = torch.from_numpy(value)
        if (recipe := known.find_recipe(tensor)) is not None:
            known.away.pop(_place(tensor), None)
            named["val"] = recipes.traced(value, recipe)
    return original(**named)


def _fold_by_channel(original: Function) -> Function:
    """Wrap a pass that folds norms and scales into a convolution, so that it computes channel by channel and keeps recipes."""

    def apply(self: object, program: object) -> None:
        with recipes.remember_single_numbers():
            original(self, program)

    return apply

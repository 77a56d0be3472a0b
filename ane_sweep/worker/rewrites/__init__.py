"""Rewrites of a model, one module each: a declaration REWRITE (bridge/rewrites.py), and some of these functions:

rewrite(module, ports, value) -> torch.nn.Module    the module, changed or wrapped; `ports` are its inputs and outputs
change_left_out(names, value)                       change the set of coremltools' passes that a conversion leaves out
select_fp32(value) -> (op -> bool) or None          the ops of an fp16 program that stay in fp32
"""

import importlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from ane_sweep.bridge.building import Options
from ane_sweep.bridge.rewrites import REWRITES
from ane_sweep.worker.models._ports import Ports

if TYPE_CHECKING:
    from torch import nn

_MODULES = ("TORCHSCRIPT_MODULE_TYPE", "TORCHSCRIPT_MODULE_NAME")


class Op(Protocol):
    """The fields of an op in coremltools' program that selectors read."""

    op_type: str
    name: str
    scopes: dict[object, list[object]]


def _chosen(options: Options, function: str) -> Iterator[tuple[ModuleType, object]]:
    """Yield (module, value) of each requested rewrite that has this function."""
    for name, declared in REWRITES.items():
        if (value := getattr(options, name)) != declared.plain:
            module = importlib.import_module(f"{__name__}.{name}")
            if hasattr(module, function):
                yield module, value


def rewrite_module(module: "nn.Module", ports: Ports, options: Options) -> "nn.Module":
    """Return a family's module after the requested rewrites."""
    for rewrite, value in _chosen(options, "rewrite"):
        module = rewrite.rewrite(module, ports, value)
    return module


def left_out_passes(left_out: set[str], options: Options) -> set[str]:
    """Return the names of coremltools' passes to leave out: the given ones, as changed by the rewrites."""
    for rewrite, value in _chosen(options, "change_left_out"):
        rewrite.change_left_out(left_out, value)
    return left_out


def fp32_selectors(options: Options) -> list[Callable[[Op], bool]]:
    """Return functions that return True for ops of an fp16 program that stay in fp32."""
    made = [rewrite.select_fp32(value) for rewrite, value in _chosen(options, "select_fp32")]
    return [select for select in made if select is not None]


def module_names(op: Op) -> list[str]:
    """Return the names and types of the torch modules behind an op."""
    return [str(name) for source in op.scopes if getattr(source, "name", "") in _MODULES for name in op.scopes[source]]

"""The growth of a package from a conversion of a few blocks."""

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from torch import Tensor, nn

from ane_sweep.worker import memory
from ane_sweep.worker.grow import ALWAYS, VARIABLE, Converted, calls, program, proof, recipes, repeats, weights
from ane_sweep.worker.grow.frontend import remember_tensors
from ane_sweep.worker.grow.repeats import Repeat
from ane_sweep.worker.models import _lazy
from ane_sweep.worker.models._mapped import TensorFiles

Convert = Callable[[Path], Converted]


def grow(
    module: nn.Module, examples: Callable[[], tuple[Tensor, ...]], convert: Convert, folder: Path, package: Path
) -> dict[str, int]:
    """Write `package`, a conversion of the whole `module`. Return the package's counts and the number of grown blocks.

    examples  returns inputs of the module in its present, possibly shortened, state
    convert   converts the module in its present state to a package at the given path
    folder    an empty folder for the conversions of a few blocks

    Raises Unlike, and any error of `convert`.
    """
    lists = calls.find_repeats(module, examples, repeats.GrowthTrial(always=os.environ.get(VARIABLE) == ALWAYS))
    differing = proof.Differing(module, lists)
    few = _convert_few(module, differing, None, convert, folder / "few.mlpackage")
    longer = [
        _convert_few(module, differing, one, convert, folder / f"more_{i}.mlpackage") for i, one in enumerate(lists)
    ]
    plan = program.GrowthPlan(few, longer, [one.trial.turns for one in lists])
    proof.check_observed(few.observed, differing)
    for one, more in zip(lists, longer):
        proof.check_apart(more.observed, differing, one)
    weights.grow_package(differing, plan)
    shutil.move(few.path, package)
    facts = {"grown_blocks": sum(one.period * one.count_copies() for one in lists)}
    for name, value in few.facts.items():
        more_of_it = (
            (more.facts[name] - value) // one.trial.turns * one.count_copies() for one, more in zip(lists, longer)
        )
        facts[name] = value + sum(more_of_it)
    return facts


def materialise_tensors(module: nn.Module, folder: Path | None = None) -> AbstractContextManager[None]:
    """Return a context in which every lazy tensor of the module is replaced by one with numbers, many in files of a `folder`."""
    files = TensorFiles(folder)
    return repeats.swap_tensors(module, lambda name, tensor: files.keep(_lazy.materialise(tensor)))


def _convert_few(
    module: nn.Module, differing: proof.Differing, longer: Repeat | None, convert: Convert, package: Path
) -> program.Shallow:
    """Convert the module with few blocks, or with more blocks in the list `longer` and changed numbers (see proof.py)."""
    lists, files = differing.lists, TensorFiles(package.parent)

    def change(name: str, tensor: Tensor) -> Tensor:
        return files.keep(differing.change(repeats.name_in_whole(name, lists, longer), tensor))

    filled = materialise_tensors(module, package.parent) if longer is None else repeats.swap_tensors(module, change)
    with (
        repeats.shorten_lists(module, lists, longer), filled, recipes.collect_recipes() as observed, remember_tensors(module),
        recipes.patch_numpy(),
    ):  # fmt: skip
        done = convert(package)
    constants = done.program.functions[program.FUNCTION].find_ops(op_type="const")
    known = {op.outputs[0].name: recipes.recipe_of(op.outputs[0].val) for op in constants}
    facts = done.facts
    del done, constants
    memory.release_freed_memory()  # before the next one is made
    return program.Shallow(package, facts, known, observed)

"""Conversion whose cost does not grow with depth: a few blocks are converted, and the program is grown from them.

repeats    lists of blocks, and a module with fewer of them     calls     finds the lists that repeat, by a run's calls
sequence   how a sequence of items continues                    program   an ML Program as such sequences
recipes    constants that remember their source weights         frontend  attaches recipes while coremltools converts
weights    streams the module's weights into weight.bin         proof     shows that blocks decide only their constants

A grown package equals, byte for byte, the package that a conversion of all blocks writes. If this cannot be proven, Unlike is
raised before `package` is written, and the caller converts all blocks.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ane_sweep.worker.grow.sequence import Unlike

__all__ = ["Converted", "Unlike", "grow", "materialise_tensors", "refuse_numbers"]


VARIABLE = "ANE_SWEEP_GROW"  # 0: all blocks are converted, whatever they are; the same bytes, so it is in no key
ALWAYS = "always"  # also where it does not pay, from as few blocks as will do: for tests at small depth


@dataclass(frozen=True)
class Converted:
    """The result of a conversion: the package, its program, and counts of its ops and numbers."""

    package: Path
    program: Any
    facts: dict[str, int]


def refuse_numbers(patterns: list[str]) -> None:
    """Raise Unlike if a pattern of op names may match one block only: it has a digit, or a wildcard for one."""
    if found := [one for one in patterns if any(c.isdigit() or c in "?[" for c in one)]:
        raise Unlike(f"fp32_ops={found[0]} may name an op of one block alone")


def grow(
    module: Any,
    examples: Callable[[], tuple[Any, ...]],
    convert: Callable[[Path], Converted],
    folder: Path,
    package: Path,
) -> dict[str, int]:
    """Write `package`, a conversion of all of `module`. Return the package's counts and the number of grown blocks.

    examples  returns inputs of the module in its present, possibly shortened, state
    convert   converts the module in its present state to a package at the given path
    folder    an empty folder for the conversions of a few blocks

    Raises Unlike, and any error of `convert`.
    """
    from ane_sweep.worker.grow import calls, program, proof, repeats, weights

    always = os.environ.get(VARIABLE) == ALWAYS
    lists = calls.find_repeats(module, examples, repeats.Trial(always=always))
    differing = proof.Differing(module, lists)
    few = _shallow(module, differing, None, convert, folder / "few.mlpackage")
    longer = [_shallow(module, differing, one, convert, folder / f"more_{i}.mlpackage") for i, one in enumerate(lists)]
    turns, counts = [one.trial.turns for one in lists], [one.count_copies() for one in lists]
    plan = program.Plan(few.shallow, [one.shallow for one in longer], turns)
    proof.check_observed(few.shallow.observed, differing)
    for one, more in zip(lists, longer):
        proof.check_apart(more.shallow.observed, differing, one)
    spec = weights.write(differing, plan, counts, few, longer)
    weights.install(few.package, spec)
    shutil.move(few.package, package)
    facts = {
        name: value
        + sum((more.facts[name] - value) // one.trial.turns * count for one, more, count in zip(lists, longer, counts))
        for name, value in few.facts.items()
    }
    return facts | {"grown_blocks": sum(one.period * one.count_copies() for one in lists)}


def materialise_tensors(module: Any) -> Any:
    """Return a context in which every tensor of the module holds its numbers."""
    from ane_sweep.worker.grow import repeats
    from ane_sweep.worker.models import _lazy

    return repeats.swap_tensors(module, lambda name, tensor: _lazy.materialise(tensor))


@dataclass(frozen=True)
class Short:
    """A conversion of a few blocks."""

    shallow: Any
    package: Path
    facts: dict[str, int]


def _shallow(module: Any, differing: Any, longer: Any, convert: Callable[[Path], Converted], package: Path) -> Short:
    """Convert the module with few blocks, or with more blocks in the list `longer` and changed numbers (see proof.py)."""
    from ane_sweep.mil import package as packages
    from ane_sweep.worker import memory
    from ane_sweep.worker.grow import frontend, program, recipes, repeats

    lists = differing.lists

    def numbers(name: str, tensor: Any) -> Any:
        return differing.change(repeats.name_in_whole(name, lists, longer), tensor)

    filled = materialise_tensors(module) if longer is None else repeats.swap_tensors(module, numbers)
    with (
        repeats.shorten_lists(module, lists, longer), filled, recipes.collect_recipes() as observed, frontend.remember_tensors(module),
        recipes.patch_numpy(),
    ):  # fmt: skip
        done = convert(package)
    known = {
        op.outputs[0].name: recipes.recipe_of(op.outputs[0].val)
        for op in done.program.functions[program.FUNCTION].operations
        if op.op_type == "const"
    }
    facts = done.facts
    del done
    memory.release_freed_memory()  # before the next one is made
    return Short(program.Shallow(packages.read(package).spec, known, observed), package, facts)

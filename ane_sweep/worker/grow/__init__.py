"""Conversion whose cost does not grow with depth: a few blocks are converted, and the program is grown from them.

repeats    lists of blocks, and a module with fewer of them     calls     which of them repeat, by what a run of it calls
sequence   how a sequence goes on                               program   an ML Program as such sequences
recipes    constants that know what they were made of           frontend  where they learn it
weights    weight.bin, streamed from where the weights lie      proof     that no block decides more than its constants

What is grown is byte for byte what a conversion of all blocks writes. Whatever is not proven to be raises Unlike before
anything is left, and the caller converts all blocks.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ane_sweep.worker.grow.sequence import Unlike

__all__ = ["Converted", "Unlike", "grow", "refuse_numbers", "whole"]


VARIABLE = "ANE_SWEEP_GROW"  # 0: all blocks are converted, whatever they are; the same bytes, so it is in no key
ALWAYS = "always"  # also where it does not pay, from as few blocks as will do: for tests at small depth


@dataclass(frozen=True)
class Converted:
    """What converting a module leaves: a package, and what was counted in it."""

    package: Path
    program: Any
    facts: dict[str, int]


def refuse_numbers(patterns: list[str]) -> None:
    """Raise Unlike where a pattern of ops may mean one block and not another: with a number in it, or a place for one digit."""
    if found := [one for one in patterns if any(c.isdigit() or c in "?[" for c in one)]:
        raise Unlike(f"fp32_ops={found[0]} may name an op of one block alone")


def grow(
    module: Any,
    examples: Callable[[], tuple[Any, ...]],
    convert: Callable[[Path], Converted],
    folder: Path,
    package: Path,
) -> dict[str, int]:
    """Write `package`, a conversion of the whole of `module`; what is in it, and how many blocks were grown.

    examples  inputs of the module as it is just then
    convert   converts the module as it is just then, to a package of its own
    folder    an empty one for the conversions of a few blocks

    Raises Unlike, and what `convert` raises.
    """
    from ane_sweep.worker.grow import calls, program, proof, repeats, weights

    always = os.environ.get(VARIABLE) == ALWAYS
    lists = calls.found(module, examples, repeats.Trial(always=always))
    differing = proof.Differing(module, lists)
    few = _shallow(module, differing, None, convert, folder / "few.mlpackage")
    longer = [_shallow(module, differing, one, convert, folder / f"more_{i}.mlpackage") for i, one in enumerate(lists)]
    turns, counts = [one.trial.turns for one in lists], [one.copies() for one in lists]
    plan = program.Plan(few.shallow, [one.shallow for one in longer], turns)
    proof.check_observed(few.shallow.observed, differing)
    for one, more in zip(lists, longer):
        proof.check_apart(more.shallow.observed, differing, one)
    spec = weights.write(differing, plan, counts, few, longer)
    weights.put(few.package, spec)
    shutil.move(few.package, package)
    facts = {
        name: value
        + sum((more.facts[name] - value) // one.trial.turns * count for one, more, count in zip(lists, longer, counts))
        for name, value in few.facts.items()
    }
    return facts | {"grown_blocks": sum(one.period * one.copies() for one in lists)}


def whole(module: Any) -> Any:
    """A context in which all of the module's tensors have their numbers."""
    from ane_sweep.worker.grow import repeats
    from ane_sweep.worker.models import _lazy

    return repeats.swapped(module, lambda name, tensor: _lazy.materialise(tensor))


@dataclass(frozen=True)
class Short:
    """A conversion of a few blocks."""

    shallow: Any
    package: Path
    facts: dict[str, int]


def _shallow(module: Any, differing: Any, longer: Any, convert: Callable[[Path], Converted], package: Path) -> Short:
    """Convert the module with few blocks as they are, or with one list `longer` and other numbers in it (see proof.py)."""
    from ane_sweep.mil import package as packages
    from ane_sweep.worker import memory
    from ane_sweep.worker.grow import frontend, program, recipes, repeats

    lists = differing.lists

    def numbers(name: str, tensor: Any) -> Any:
        return differing.change(repeats.in_whole(name, lists, longer), tensor)

    filled = whole(module) if longer is None else repeats.swapped(module, numbers)
    with (
        repeats.shortened(module, lists, longer), filled, recipes.observing() as observed, frontend.remembered(module),
        recipes.through_numpy(),
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

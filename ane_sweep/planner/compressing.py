"""The compressor of a cell's weights (axis `compressor`), and the recipes that coreai-opt lacks."""

from collections.abc import Mapping

from ane_sweep.bridge import recipes
from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.programs import PROGRAMS, offers, refuse
from ane_sweep.machine import coreai, host

TOOL = "coreai-opt"
_OF_PROGRAMS = "coreai-opt compresses torch modules"
_NO_FLOATS = "{}: Core ML's programs hold no weights of narrow floats; toolchain=coreai"


def is_in_torch(cell: Cell, kind: str) -> bool:
    """Return True if coreai-opt compresses a cell's weights before they are converted to a program of this kind."""
    if not cell.precision_settings.weights or cell.compressor == "ane_sweep" or not PROGRAMS[kind].codes:
        return False
    return cell.compressor == "coreai_opt" or not offers(kind, "compress")


def choose_recipe(cell: Cell, kind: str) -> recipes.Recipe | None:
    """Return the recipe that stage compress applies, or None."""
    return None if is_in_torch(cell, kind) else recipes.canonical(cell.precision_settings.weights)


def describe_codes(cell: Cell, kind: str) -> dict[str, object]:
    """Return the part of a conversion's params that asks for a compression in torch, or nothing."""
    if not is_in_torch(cell, kind):
        return {}
    return {"recipe": recipes.canonical(cell.precision_settings.weights), "compressor": {TOOL: host.version_of(TOOL)}}


def refusal(cell: Cell, kind: str, is_package: bool) -> str | None:
    """Return why nothing compresses a cell's weights as it asks, or None."""
    if (recipe := recipes.canonical(cell.precision_settings.weights)) is None:
        return None
    asked = f"precision={cell.precision}"
    if not is_in_torch(cell, kind):
        if recipe["kind"] == "float":
            return _NO_FLOATS.format(asked)
        if cell.compressor == "coreai_opt":
            return f"{asked} compressor=coreai_opt: {PROGRAMS[kind].title} is not made of its codes"
        if PROGRAMS[kind].codes and not offers(kind, "compress"):
            return f"{asked} compressor={cell.compressor}: it compresses Core ML's programs; compressor=coreai_opt, or toolchain=coreml"
        return refuse(kind, "compress", asked if cell.compressor == "auto" else f"{asked} compressor={cell.compressor}")
    if is_package:
        return f"{asked}: {_OF_PROGRAMS}, and {cell.model} is a package: compressor=ane_sweep"
    if unknown := _find_unknown(recipe):
        instead = "; compressor=ane_sweep" if offers(kind, "compress") else "; toolchain=coreml compressor=ane_sweep"
        return f"{asked}: {_OF_PROGRAMS}, and this recipe {unknown}{instead}"
    takes = PROGRAMS[kind].codes
    if recipe["kind"] == "float" and takes == "CoreML":
        return _NO_FLOATS.format(asked)
    if (recipe["kind"], recipe.get("bits"), takes) == ("palettized", 3, "CoreAI"):
        return f"{asked}: coreai-torch 0.4.3 writes tables of 1, 2, 4, 6 and 8 bits"
    missing = coreai.find_missing(("coreai_opt",))
    return f"{asked} compressor=coreai_opt {missing}" if missing else None


def _find_unknown(recipe: Mapping[str, object]) -> str | None:
    """Return the first part of a recipe that is not asked of coreai-opt here, or None."""
    rules = (
        (recipe["kind"] == "mixed", "weighs the ops of a program"),
        (recipe["activations"] is not None, "calibrates the ops of a program"),
        (bool(recipe["skip"] or recipe["overrides"]), "names weights of a program (skip, overrides)"),
        (recipe["kind"] != "sparse" and recipe.get("sparsity") is not None, "joins sparsity with another compression"),
        (isinstance(recipe.get("sparsity"), str), "keeps n of m inputs"),
        (recipe.get("mode") == "uniform", "spaces its tables evenly"),
    )
    return next((what for holds, what in rules if holds), None)

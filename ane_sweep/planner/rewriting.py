"""The rewrites of converted programs that a cell asks for (axis `rewrite`)."""

from collections.abc import Iterable

from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.rewrites import KINDS_OF_PROGRAMS, NO_REWRITE
from ane_sweep.fix.rewrite import REWRITES


def choose(cell: Cell) -> list[str]:
    """Return the names of a cell's rewrites in their order; [] for rewrite=none."""
    asked = cell.rewrite if isinstance(cell.rewrite, list) else [cell.rewrite]
    if takes_variant(cell):
        asked = [*asked, "ane"]
    if asked == [NO_REWRITE]:
        return []
    kinds = {KINDS_OF_PROGRAMS.get(word) for word in asked}
    return [name for name, one in REWRITES.items() if "all" in asked or name in asked or one.kind in kinds]


def takes_variant(cell: Cell) -> bool:
    """Return True if variant=split_einsum of a user's own model means the program's rewrites for placement."""
    return cell.model_settings.is_given and cell.variant == "split_einsum"


def modules(names: Iterable[str]) -> tuple[str, ...]:
    """Return the modules that apply these rewrites, and those that are applied with them."""
    found = dict.fromkeys(each for name in names for each in (name, *REWRITES[name].then))
    return tuple(f"ane_sweep.fix.rewrites.{name}" for name in found)

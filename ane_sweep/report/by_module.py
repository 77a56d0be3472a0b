"""Placement and planner cost by torch module, one fold for each program that is placed differently."""

from ane_sweep.placement.types import ModulePlace
from ane_sweep.report.blocks import Block, Grid, Para, Section
from ane_sweep.report.views import Cells, group_names
from ane_sweep.results.headline import name_chip, shipped_chip

GROUPS = 8  # folds; the records have all
NOTE = (
    "Predicted for the chip that is shipped for. `layer.0-5` stands for six equal modules, whose figures are summed; a module "
    "contains those listed below it whose names begin with its own. An op without weights counts to the module that its "
    "neighbours share. planner cost %: a share of the planner's prices, no share of the time."
)
HEADS = ["torch module", "planner cost %", "ANE", "GPU", "CPU", "source line"]


def section(cells: Cells) -> Section | None:
    """Return the section, or None if no cell's modules are known."""
    found: list[tuple[str, list[ModulePlace], list[int]]] = []
    for n, record in enumerate(cells.records):
        own = shipped_chip(record)
        entry = next((one for one in record.placed("predicted") if one.modules and one.chip == own), None)
        if entry is None or not entry.modules:
            continue
        same = next((group for group in found if group[:2] == (own, entry.modules)), None)
        if same is None:
            found.append(same := (own or "", entry.modules, []))
        same[2].append(n)
    names = group_names(cells, [members for _, _, members in found])
    grids: list[Block] = [
        Grid(HEADS, list(map(_row, places)), [False] + [True] * 4 + [False], fold=f"{name}, {name_chip(chip)}: {len(places)} modules")
        for name, (chip, places, _) in list(zip(names, found))[:GROUPS]
    ]  # fmt: skip
    more = f" {GROUPS} of {len(found)} programs; the records have all." if len(found) > GROUPS else ""
    return Section("By torch module", [Para(NOTE + more), *grids]) if grids else None


def _row(place: ModulePlace) -> list[str]:
    ops = place.ops
    return [place.path, f"{100 * place.cost_share:.1f}", *map(str, (ops.ane, ops.gpu, ops.cpu)), place.line or "-"]

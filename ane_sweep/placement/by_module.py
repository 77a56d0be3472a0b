"""Placement and cost by torch module, as a tree: `encoder.layer.0-5.attention: 61 % of the cost, 2 ops on the CPU`.

Modules are those of mil/modules.py, so the sums are as exact as its `basis` says.
"""

from collections.abc import Sequence
from dataclasses import replace

from ane_sweep.mil.module_tree import Branch, build, choose_branches, join_alike
from ane_sweep.mil.modules import Basis
from ane_sweep.placement.programs import Program
from ane_sweep.placement.rows import OpRow, count_ops, count_text
from ane_sweep.placement.types import ModuleChange, ModulePlace

LINES = 12  # of a text for people
KEPT = 24  # of a record
OUTSIDE = "(no module)"  # ops before, behind and between the modules of the first level
BASES: dict[Basis, str] = {
    "noted": "modules as noted at conversion",
    "weights": "modules guessed from names of weights: Core ML's converter keeps nothing else",
    "names": "modules guessed from names of ops: no weight has a parameter's name",
    "nothing": "no module is known: neither weights nor ops have telling names",
}


def list_modules(rows: Sequence[OpRow], chain: Sequence[Program], most: int = KEPT) -> list[ModulePlace]:
    """Return the modules that cost most or have most ops off the Neural Engine, in program order; [] if none is known."""
    tree = build((row.site.module, row) for row in rows)
    root = join_alike(tree, lambda alike: tuple(f"{row.site.type} {row.preferred}" for row in alike))
    total = sum(row.ms for row in rows) or 1.0
    off = sum(row.preferred != "ane" for row in rows) or 1
    lines = {path: line for program in chain if program.modules for path, line in program.modules.lines.items()}

    def rate(some: Sequence[OpRow]) -> float:
        return sum(row.ms for row in some) / total + sum(row.preferred != "ane" for row in some) / off

    places = [_to_place(branch, depth, total, lines) for depth, branch in choose_branches(root, rate, most)]
    outside = [row for row in rows if not row.site.module]
    return [*places, _to_place(Branch(OUTSIDE, outside), 0, total, {})] if places and outside else places


def _to_place(branch: Branch[OpRow], depth: int, total: float, lines: dict[str, str]) -> ModulePlace:
    share = round(sum(row.ms for row in branch.items) / total, 6)
    single = ".".join(part.partition("-")[0] for part in branch.path.split("."))  # the first of several alike
    return ModulePlace(branch.path, depth, count_ops(branch.items), share, branch.alike, lines.get(single) or None)


def find_basis(chain: Sequence[Program]) -> Basis:
    """Return the weakest basis of a chain's programs: see mil/modules.py."""
    found = [program.modules.basis for program in chain if program.modules]
    return max(found, key=list(BASES).index, default="nothing")


def format_modules(places: Sequence[ModulePlace], basis: Basis) -> list[str]:
    """Return the tree as lines for people, the basis first."""
    if not places:
        return [BASES["nothing"]]
    above: list[str] = []
    made = [f"by module, of the planner cost ({BASES[basis]}):"]
    for place in places:
        del above[place.depth :]
        name = place.path.removeprefix(f"{above[-1]}." if above else "")
        above.append(place.path)
        where = f"  ({place.line})" if place.line else ""
        made.append(f"{'  ' * (place.depth + 1)}{name}: {describe_place(place)}{where}")
    return made


def describe_place(place: ModulePlace) -> str:
    """Return `61 % of the cost, 2 of 40 ops on the CPU`."""
    total = count_text(place.ops.total, "op")
    units = (("CPU", place.ops.cpu), ("GPU", place.ops.gpu))
    off = " and ".join(f"{count} of {total} on the {unit}" for unit, count in units if count)
    return f"{100 * place.cost_share:.1f} % of the cost, {off or f'all of {total} on the ANE'}"


def compare_modules(before: Sequence[OpRow], after: Sequence[OpRow], most: int = LINES) -> list[ModuleChange]:
    """Return the modules whose ops, units or cost differ between two programs, in program order; the programs as a whole first.

    A program that knows no modules differs as a whole alone.
    """
    sides = [(row.site.module, (side, row)) for side, rows in enumerate((before, after)) for row in rows]
    root = join_alike(build(sides), lambda some: tuple(f"{side} {row.site.type} {row.preferred}" for side, row in some))
    total = sum(row.ms for row in before) or 1.0

    def compare(depth: int, branch: Branch[tuple[int, OpRow]]) -> ModuleChange:
        old, new = ([row for side, row in branch.items if side == one] for one in (0, 1))
        costs = [round(sum(row.ms for row in rows) / total, 6) for rows in (old, new)]
        return ModuleChange(branch.path, depth, count_ops(old), count_ops(new), costs[0], costs[1], branch.alike)

    def rate(some: Sequence[tuple[int, OpRow]]) -> float:
        found = compare(0, Branch("", list(some)))
        old, new = found.before, found.after
        moved = abs(new.cpu - old.cpu) + abs(new.gpu - old.gpu) + abs(new.ane - old.ane)
        return moved / (len(sides) or 1) + abs(found.cost_after - found.cost_before)

    changes = [compare(depth, branch) for depth, branch in choose_branches(root, rate, most)]
    changed = [one for one in changes if one.before != one.after or one.cost_before != one.cost_after]
    return [compare(0, root), *(replace(one, depth=one.depth + 1) for one in changed)]


def format_changes(changes: Sequence[ModuleChange]) -> list[str]:
    """Return the tree as lines for people, the programs as a whole first."""
    return [f"{'  ' * one.depth}{one.path or 'the whole program'}: {_describe_change(one)}" for one in changes]


def _describe_change(one: ModuleChange) -> str:
    """Return `cost 61.0 to 70.0 %, 12 ops to 14, on the CPU 0 to 2`, without what is equal."""
    parts = [
        f"cost {100 * one.cost_before:.1f} to {100 * one.cost_after:.1f} %",
        f"ops {one.before.total} to {one.after.total}",
    ]
    pairs = ((unit, getattr(one.before, unit), getattr(one.after, unit)) for unit in ("ane", "gpu", "cpu"))
    moved = [f"on the {unit.upper()} {old} to {new}" for unit, old, new in pairs if old != new]
    return ", ".join([*parts, *(moved or ["each on its unit"])])

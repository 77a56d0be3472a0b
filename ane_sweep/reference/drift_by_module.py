"""Drift by torch module, as a tree: how far the values are off where a module begins and where it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ane_sweep.mil.module_tree import Branch, build, choose_branches
from ane_sweep.mil.modules import find_modules
from ane_sweep.reference.model import Model
from ane_sweep.reference.trace import ObservedValue
from ane_sweep.stats.psnr import recorded_db

LINES = 12


@dataclass(frozen=True)
class ModuleDrift:
    """The drift of a module's last value, of the value before its first one, and the PSNR of the last.

    depth: how many of the modules listed before contain it; values: how many of its values were compared.
    """

    path: str
    depth: int
    values: int
    before: float
    drift: float
    psnr_db: float

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def roll_up(seen: Sequence[ObservedValue], model: Model, most: int = LINES) -> list[ModuleDrift]:
    """Return the modules of `model` in which the drift grows most, in program order; [] if nothing drifts or no module is known."""
    compared = [item for item in seen if item.drift is not None]
    drifts = [float(item.drift or 0.0) for item in compared]
    if not any(drifts):
        return []
    found = find_modules(model.program.package).paths
    paths = {name: found.get((model.function, op.outputs[0]), "") for op in model.program.ops for name in op.outputs}

    def find_start(places: Sequence[int]) -> float:
        return drifts[places[0] - 1] if places[0] else 0.0

    def measure_growth(places: Sequence[int]) -> float:
        end = drifts[places[-1]]
        return end - find_start(places) if math.isfinite(end) else math.inf

    def describe(depth: int, branch: Branch[int]) -> ModuleDrift:
        last = branch.items[-1]
        psnr = recorded_db(compared[last].psnr_db or 0.0)
        return ModuleDrift(branch.path, depth, len(branch.items), find_start(branch.items), drifts[last], psnr)

    tree = build((paths.get(item.name, ""), place) for place, item in enumerate(compared))
    return [describe(depth, branch) for depth, branch in choose_branches(tree, measure_growth, most)]


def format_drifts(rows: Sequence[ModuleDrift]) -> list[str]:
    """Return the tree as lines for people: `encoder.layer.3: drift 1.2e-03 to 4.0e-03, PSNR 55.1 dB at its end`."""
    above: list[str] = []
    made = []
    for row in rows:
        del above[row.depth :]
        name = row.path.removeprefix(f"{above[-1]}." if above else "")
        above.append(row.path)
        drift = f"drift {row.before:.1e} to {row.drift:.1e}, PSNR {row.psnr_db:.1f} dB at its end"
        made.append(f"{'  ' * row.depth}{name}: {drift}")
    return made

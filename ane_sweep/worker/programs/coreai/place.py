"""The unit on which Core AI plans to run each op of an asset, from ComputePlan of coreai-torch (0.4.3). macOS 27 alone.

The plan compiles the asset for the units asked for (specialisation), names units and the Neural Engine's own words for
what it declined, and prices nothing. An op that was fused into another has no entry. What is written here was run with
scripted answers only (tests/stand_in/coreai.py): a Mac has to confirm it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from ane_sweep.errors import Unavailable
from ane_sweep.machine.asset_ops import shorten
from ane_sweep.placement.types import Placement
from ane_sweep.worker.params import CoreMLParams
from ane_sweep.worker.programs import PlannedOp, ProgramPlan

SOURCE, IS_PRICED = "Core AI's ComputePlan", False
_UNITS = {"NEURAL_ENGINE": "ane", "GPU": "gpu", "CPU": "cpu"}  # the first of several counts
_LEFT_OUT = ("coreai.constant", "coreai.graph", "coreai.output", "builtin.module")


class PlanEntry(TypedDict):
    """An entry of ComputePlan.to_dict."""

    operation_id: int
    devices: list[str]
    residency: str
    validation: list[str]


class PlanTable(TypedDict):
    """The part of ComputePlan.to_dict that is read here."""

    entries: list[PlanEntry]
    operation_names: dict[int, str]


def plan(params: dict[str, object], inputs: Mapping[str, Path], keep: Path) -> list[ProgramPlan]:
    """Plan the asset. Raises Unavailable where Core AI plans nothing: off macOS 27, or without USE_OS_COREAI=1."""
    from coreai.authoring import AIModelAsset
    from coreai.runtime import SpecializationOptions
    from coreai_torch.debugging.compute_plan import ComputePlan

    if not SpecializationOptions.is_supported():
        raise Unavailable("Core AI plans on macOS 27 alone, with USE_OS_COREAI=1 in the environment")
    (asset,) = sorted(inputs["program"].glob("*.aimodel"))
    program = AIModelAsset.load(asset).program
    options = choose_options(CoreMLParams.read(params).compute_units)
    made: PlanTable = asyncio.run(ComputePlan.from_program(program, options)).to_dict(program)
    return [{"rows": list_rows(made), "compiled": {"files": [], "left": []}}]


def choose_options(units: str) -> object:
    """Return Core AI's options for compute units named as Core ML's."""
    from coreai import runtime

    options = runtime.SpecializationOptions
    if units == "all":
        return options.default()
    if units == "cpu_only":
        return options.cpu_only()
    kind = runtime.ComputeUnitKind
    return options.from_preferred_compute_unit_kind(kind.gpu() if units == "cpu_and_gpu" else kind.neural_engine())


def list_rows(made: PlanTable) -> list[PlannedOp]:
    """Return a row for each op of the program, by its number; an op without an entry has no unit."""
    entries = {entry["operation_id"]: entry for entry in made["entries"]}
    rows: list[PlannedOp] = []
    for number, name in sorted(made["operation_names"].items()):
        if name in _LEFT_OUT:
            continue
        entry = entries.get(number)
        units = [unit for device, unit in _UNITS.items() if entry and device in entry["devices"]]
        said = "; ".join(entry["validation"]) if entry else ""
        rows.append({
            "chunk": None, "function": "main", "name": str(number), "op_type": shorten(name),
            "preferred": units[0] if units else None, "supported": [*units], "cost": 1.0, "why_not_ane": said or None,
        })  # fmt: skip
    return rows


def describe_compiled(
    plans: Sequence[ProgramPlan], folder: Path, summary: Placement, program: Path
) -> dict[str, object]:
    """Return no facts of compiled files: Core AI keeps them to itself."""
    return {"files": [], "left": [], "tasks": None}

"""place: which unit Core ML plans to run each op on, as MLComputePlan says it. macOS only.

params  compute_units ("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne")
inputs  program: a folder of compiled .mlmodelc
leaves  placement.planned.<chip>.json: the record's placement entry, and one row an op

A plan is no guarantee at run time: its figures are of kind "planned". Constants are left out: they run nowhere, and the
plan lists them all the same.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ane_sweep.errors import StageError, Unavailable
from ane_sweep.runtimes import coreml

from . import StageResult, metric

_UNITS = {"MLCPUComputeDevice": "cpu", "MLGPUComputeDevice": "gpu", "MLNeuralEngineComputeDevice": "ane"}


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """Raises Unavailable off macOS, StageError when Core ML has no plan for any op (low deployment targets)."""
    if reason := coreml.available():
        raise Unavailable(reason)
    from ane_sweep import host
    from ane_sweep.runtimes._coremltools import lean

    ct = lean()
    MLComputePlan = ct.models.compute_plan.MLComputePlan
    units = getattr(ct.ComputeUnit, params["compute_units"].upper())
    table = []
    for program in sorted(inputs["program"].glob("*.mlmodelc")):
        plan = MLComputePlan.load_from_path(str(program), compute_units=units)
        table += [{"chunk": program.stem, **row} for row in plan_rows(plan)]
    summary = summarise(table, chip_name(host.fingerprint()["chip"]), params["compute_units"])
    content = {"schema": 1, **summary, "table": table}
    (out / f"placement.planned.{summary['chip']}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")

    def planned(name: str, value: float) -> dict[str, Any]:
        return metric(name, value, "1", kind="planned", source="MLComputePlan")

    metrics = [planned(f"ops_{unit}", count) for unit, count in summary["ops"].items()]
    metrics.append(planned("cost_share_ane", summary["cost_share"]["ane"]))
    metrics += [planned(name, summary[name]) for name in ("segments", "transitions")]
    return StageResult(metrics, facts={"placement": [summary]})


def plan_rows(plan: Any) -> list[dict[str, Any]]:
    """One row an op of an MLComputePlan in file order: op_type (without opset), preferred unit or None, cost weight."""
    rows = []
    for function in plan.model_structure.program.functions.values():
        for op in function.block.operations:
            op_type = op.operator_name.split(".")[-1]
            if op_type.startswith("const"):  # const and constexpr_*
                continue
            usage = plan.get_compute_device_usage_for_mlprogram_operation(op)
            estimate = plan.get_estimated_cost_for_mlprogram_operation(op)
            preferred = None if usage is None else _UNITS[type(usage.preferred_compute_device).__name__]
            rows.append(
                {"op_type": op_type, "preferred": preferred, "cost": 0.0 if estimate is None else estimate.weight}
            )
    return rows


def summarise(table: Sequence[dict[str, Any]], chip: str, compute_units: str) -> dict[str, Any]:
    """The record's placement entry. Raises StageError when no op has a device."""
    from ane_sweep.placement.path import count_segments

    placed = [row for row in table if row["preferred"] is not None]
    if not placed:
        raise StageError("MLComputePlan names no device for any op; it does so for deployment targets below iOS17")
    total = sum(row["cost"] for row in placed) or 1.0
    segments, transitions = count_segments([row["preferred"] for row in placed])
    ops = {unit: sum(row["preferred"] == unit for row in placed) for unit in _UNITS.values()}
    return {
        "kind": "planned",
        "chip": chip,
        "compute_units": compute_units,
        "ops": {**ops, "total": len(placed)},
        "cost_share": {
            unit: sum(row["cost"] for row in placed if row["preferred"] == unit) / total for unit in _UNITS.values()
        },
        "segments": segments,
        "transitions": transitions,
        "chunks": [],
        "reasons": [],
    }


def chip_name(brand: str | None) -> str:
    """`Apple M4 Pro`, as sysctl says it, to `m4_pro`, as the chip table does."""
    return (brand or "unknown").removeprefix("Apple ").strip().lower().replace(" ", "_")

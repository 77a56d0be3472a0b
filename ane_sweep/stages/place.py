"""place: which unit Core ML plans to run each op on, as MLComputePlan says it. macOS only.

params  compute_units ("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne")
inputs  program: a folder of compiled .mlmodelc
leaves  placement.json: per program, ops and share of estimated cost per unit

A plan is no guarantee at run time: its figures are of kind "planned". Constants are left out: they run nowhere, and the
plan lists them all the same.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ane_sweep.errors import StageError, Unavailable

from . import StageResult, metric

_UNITS = {"MLCPUComputeDevice": "cpu", "MLGPUComputeDevice": "gpu", "MLNeuralEngineComputeDevice": "ane"}


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """Raises Unavailable off macOS, StageError when Core ML has no plan for any op (low deployment targets)."""
    if sys.platform != "darwin":
        raise Unavailable("needs macOS")
    import coremltools as ct
    from coremltools.models.compute_plan import MLComputePlan

    units = getattr(ct.ComputeUnit, params["compute_units"].upper())
    plans = []
    for program in sorted(inputs["program"].glob("*.mlmodelc")):
        plan = MLComputePlan.load_from_path(str(program), compute_units=units)
        plans.append({"program": program.name, **count_plan(plan)})
    (out / "placement.json").write_text(json.dumps(plans, indent=1), encoding="utf-8")
    ops = {unit: sum(plan["ops"][unit] for plan in plans) for unit in _UNITS.values()}
    if not sum(ops.values()):
        raise StageError("MLComputePlan names no device for any op; it does so for deployment targets below iOS17")
    cost = sum(plan["cost"]["ane"] for plan in plans) / max(sum(sum(plan["cost"].values()) for plan in plans), 1e-12)
    metrics = [metric(f"ops_{unit}", count, "1", kind="planned", source="MLComputePlan") for unit, count in ops.items()]
    metrics.append(metric("cost_share_ane", cost, "1", kind="planned", source="MLComputePlan"))
    return StageResult(metrics=metrics)


def count_plan(plan) -> dict[str, dict[str, Any]]:
    """{"ops": {cpu, gpu, ane}, "cost": {cpu, gpu, ane}} of one MLComputePlan; ops without a device are not counted."""
    ops = dict.fromkeys(_UNITS.values(), 0)
    cost = dict.fromkeys(_UNITS.values(), 0.0)
    for function in plan.model_structure.program.functions.values():
        for op in function.block.operations:
            if op.operator_name.split(".")[-1] == "const" or "constexpr" in op.operator_name:
                continue
            usage = plan.get_compute_device_usage_for_mlprogram_operation(op)
            if usage is None:
                continue
            unit = _UNITS[type(usage.preferred_compute_device).__name__]
            estimate = plan.get_estimated_cost_for_mlprogram_operation(op)
            ops[unit] += 1
            cost[unit] += estimate.weight if estimate is not None else 0.0
    return {"ops": ops, "cost": cost}

"""place: records the unit on which the toolchain plans to run each op; for ML Programs from MLComputePlan. macOS only.

params  compute_units ("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"), device, host; chip of a connected device
inputs  program, compiled (a .mlmodelc of each)
leaves  placement.planned.<chip>.json  the record's placement entry, and one row an op
        plan.trace.json                the plan for chrome://tracing or Perfetto (worker/programs/trace.py)
        compiled/                      programs (.hwx) and net.plist that Core ML made for it, if they were found

A plan is no guarantee at run time: its figures are of kind "planned".
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from ane_sweep.bridge.figures import Metric, as_plain
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import Unavailable
from ane_sweep.machine import apple, host
from ane_sweep.placement.path import count_segments
from ane_sweep.placement.types import Ops, Part, Placement, Reason, Shares
from ane_sweep.worker import params, programs
from ane_sweep.worker.programs import Placer, PlannedOp, trace
from ane_sweep.worker.stages import StageResult
from ane_sweep.worker.stages.predict import list_placement_metrics
from ane_sweep.worker.timing.parts import COSTLY

STAGE = Stage(
    order=90, many="placements", timeout_s=7200, base_gib=0.5, per_byte=1.0, base_s=10, per_gb_s=30,
    stored=False, artifact=True, alone=True, runs_program=True, on_coreml=True, compiles_for_ane=True, parts=("place",),
)  # fmt: skip

UNITS = ("cpu", "gpu", "ane")
COMPILED = "compiled"  # folder of what Core ML made


class Params(params.CoreMLParams, frozen=True):
    """Parameters of this stage; see the module's docstring."""


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Plan all programs. Raises Unavailable off macOS, and if Core ML plans no op (low deployment targets); StageError."""
    if reason := apple.no_coreml():
        raise Unavailable(reason)
    settings = Params.read(params)
    placer: Placer = programs.part(settings.program, "place")
    plans = placer.plan(params, inputs, out / COMPILED)
    table = [row for plan in plans for row in plan["rows"]]
    summary = summarise(table, settings.chip or host.chip_name(host.chip()), settings.compute_units, placer.SOURCE)
    compiled = placer.describe_compiled(plans, out / COMPILED, summary, inputs["program"])
    content = {"schema": 1, **as_plain(summary), "table": table, "compiled": compiled}
    (out / f"placement.planned.{summary.chip}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    (out / trace.NAME).write_text(json.dumps(trace.build_events(table, summary)), encoding="utf-8")
    metrics = list_placement_metrics(summary, "planned", placer.SOURCE)
    if isinstance(tasks := compiled["tasks"], (int, float)):
        metrics.append(Metric("ane_tasks", tasks, "1", kind="planned", source="compiled program (hwx)"))
    realised: dict[str, object] = {"ane_compiled": compiled}
    if placer.IS_PRICED:
        realised["planned_costs"] = rank_costs(table)
    return StageResult(metrics, realised=realised, placement=[summary])


def rank_costs(table: list[PlannedOp]) -> dict[str, object]:
    """Return the ops with the largest shares of the cost in Core ML's plan."""
    total = sum(row["cost"] for row in table) or 1.0
    chunks = list(dict.fromkeys(row["chunk"] for row in table))
    ops = [
        {"op": row["name"], "type": row["op_type"], "chunk": chunks.index(row["chunk"]) + 1, "unit": row["preferred"],
         "share": round(row["cost"] / total, 4)}
        for row in sorted(table, key=lambda row: -row["cost"])[:COSTLY]
    ]  # fmt: skip
    return {"kind": "planned", "source": "MLComputePlan", "ops": ops}


def summarise(table: Sequence[PlannedOp], chip: str, compute_units: str, source: str = "MLComputePlan") -> Placement:
    """Return the record's placement entry. Raises Unavailable if no op has a device."""
    placed = [row for row in table if row["preferred"] is not None]
    if not placed:
        raise Unavailable(
            f"{source} names no device for any op of this program; MLComputePlan does so for deployment targets below iOS17: "
            "try target=iOS17 or newer"
        )
    chunks = dict.fromkeys((row["chunk"], row["function"]) for row in placed)
    parts = []
    for chunk, function in chunks:
        rows = [row for row in placed if (row["chunk"], row["function"]) == (chunk, function)]
        segments, transitions = count_segments([str(row["preferred"]) for row in rows])
        parts.append(Part(chunk, _count_ops(rows), _sum_shares(rows), segments, transitions, function))
    return Placement(
        kind="planned",
        chip=chip,
        compute_units=compute_units,
        ops=_count_ops(placed),
        cost_share=_sum_shares(placed),
        segments=sum(part.segments for part in parts),
        transitions=sum(part.transitions for part in parts),
        chunks=parts,
        reasons=group_reasons(placed, source),
        unplaced=len(table) - len(placed),
    )


def _count_ops(rows: Sequence[PlannedOp]) -> Ops:
    return Ops(**{unit: sum(row["preferred"] == unit for row in rows) for unit in UNITS}, total=len(rows))


def _sum_shares(rows: Sequence[PlannedOp]) -> Shares:
    total = sum(row["cost"] for row in rows) or 1.0
    costs = {unit: sum(row["cost"] for row in rows if row["preferred"] == unit) for unit in UNITS}
    return Shares(**{unit: cost / total for unit, cost in costs.items()})


def group_reasons(rows: Sequence[PlannedOp], source: str = "MLComputePlan") -> list[Reason]:
    """Return the reasons why ops are not planned for the Neural Engine, in the compiler's words, most costly first."""
    total = sum(row["cost"] for row in rows) or 1.0
    groups: dict[str, list[PlannedOp]] = defaultdict(list)
    for row in rows:
        if row["preferred"] != "ane":
            refused = row.get("why_not_ane") or ("ane" not in row["supported"] and "not among the supported units")
            groups[refused or "supported, and planned elsewhere"].append(row)
    found = [
        Reason(
            reason=reason,
            ops=len(members),
            op_types=dict(Counter(row["op_type"] for row in members).most_common()),
            cost_share=round(sum(row["cost"] for row in members) / total, 6),
            names=[row["name"] for row in members[:5]],
            source="analytics.mil" if members[0].get("why_not_ane") and source == "MLComputePlan" else source,
        )
        for reason, members in groups.items()
    ]
    return sorted(found, key=lambda entry: -entry.cost_share)

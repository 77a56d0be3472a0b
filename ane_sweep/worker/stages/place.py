"""place: records the unit on which Core ML plans to run each op, from MLComputePlan. macOS only.

params  compute_units ("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"), device, host
inputs  program, compiled (a .mlmodelc of each)
leaves  placement.planned.<chip>.json  the record's placement entry, and one row an op
        plan.trace.json                the plan for chrome://tracing or Perfetto (trace.py)
        compiled/                      programs (.hwx) and net.plist that Core ML made for it, where they could be found

Each program and each function of it is planned in a process of its own (coreml/steps.py): planning compiles for the Neural
Engine, in full. MLComputePlan of coremltools 9.0 plans a package's default function alone; another one is planned from
a copy in which it is the default. The compiler's own notes on each op (mil/analytics.py: its estimate, the backend that
it chose, why not the Neural Engine) stand in the rows where they could be read.

A plan is no guarantee at run time: its figures are of kind "planned". Constants are left out: they run nowhere, and the
plan lists them all the same.
"""

import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ane_sweep.bridge.figures import Metric, as_plain
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError, Unavailable
from ane_sweep.hwx import copies
from ane_sweep.machine import host
from ane_sweep.mil import analytics, identity, package
from ane_sweep.placement.path import count_segments
from ane_sweep.placement.types import Ops, Part, Placement, Reason, Shares
from ane_sweep.worker.coreml import trace
from ane_sweep.worker.coreml.compiled import describe_compiled
from ane_sweep.worker.runtimes import _remote, coreml
from ane_sweep.worker.runtimes._chain import COMPUTE_UNITS
from ane_sweep.worker.runtimes._coremltools import import_coremltools
from ane_sweep.worker.stages import StageResult, compile, load
from ane_sweep.worker.timing.parts import COSTLY

STAGE = Stage(
    order=90, many="placements", timeout_s=7200, base_gib=0.5, per_byte=1.0, guess_s=10, guess_per_gb=30,
    stored=False, artifact=True, alone=True, runs_program=True, on_coreml=True, compiles_for_ane=True,
)  # fmt: skip

_UNITS = {"MLCPUComputeDevice": "cpu", "MLGPUComputeDevice": "gpu", "MLNeuralEngineComputeDevice": "ane"}
COMPILED = "compiled"  # folder of what Core ML made
_CLOCKS_S = 2.0  # by which a file's time may lie before the clock's
_NOTES = ("backend", "estimated_ms", "why_not_ane")  # of analytics.mil, taken into a row


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """Plan all programs. Raises Unavailable off macOS, and if Core ML plans no op (low deployment targets); StageError."""
    if reason := coreml.available():
        raise Unavailable(reason)

    steps = _plan_programs(params, inputs, out / COMPILED)
    table = [row for step in steps for row in step["rows"]]
    chip = params.get("chip") or host.chip_name(host.chip())
    summary = summarise(table, chip, params["compute_units"])
    compiled = describe_compiled(steps, out / COMPILED, summary, inputs["program"])
    content = {"schema": 1, **as_plain(summary), "table": table, "compiled": compiled}
    (out / f"placement.planned.{summary.chip}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    (out / trace.NAME).write_text(json.dumps(trace.build_events(table, summary)), encoding="utf-8")

    def planned(name: str, value: float) -> Metric:
        return Metric(name, value, "1", kind="planned", source="MLComputePlan")

    metrics = [planned(f"ops_{unit}", count) for unit, count in vars(summary.ops).items()]
    metrics.append(planned("cost_share_ane", summary.cost_share.ane))
    metrics += [planned("segments", summary.segments), planned("transitions", summary.transitions)]
    if compiled["tasks"] is not None:
        metrics.append(Metric("ane_tasks", compiled["tasks"], "1", kind="planned", source="compiled program (hwx)"))
    realised = {"ane_compiled": compiled, "planned_costs": rank_costs(table)}
    return StageResult(metrics, realised=realised, placement=[summary])


def rank_costs(table: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the ops with the largest shares of the cost in Core ML's plan."""
    total = sum(row["cost"] for row in table) or 1.0
    chunks = list(dict.fromkeys(row["chunk"] for row in table))
    worst = sorted(table, key=lambda row: -row["cost"])[:COSTLY]
    ops = [
        {"op": row["name"], "type": row["op_type"], "chunk": chunks.index(row["chunk"]) + 1, "unit": row["preferred"],
         "share": round(row["cost"] / total, 4)}
        for row in worst
    ]  # fmt: skip
    return {"kind": "planned", "source": "MLComputePlan", "ops": ops}


def _plan_programs(params: dict[str, Any], inputs: dict[str, Path], keep: Path) -> list[dict[str, Any]]:
    """Plan each program and function in a step of its own, in the order they run."""
    found = []
    programs = package.program_paths(inputs["program"])
    for program, compiled in zip(programs, coreml.find_compiled(inputs["compiled"], programs)):
        for function, path in _list_functions(program, compiled):
            chunk = program.stem if len(programs) > 1 else None
            what = f"place {program.stem}" + (f" ({function})" if function else "")
            home = Path(tempfile.mkdtemp(prefix="home-"))
            asked = {"program": str(path), "chunk": chunk, "function": function, "params": params}
            asked["keep"] = str(keep)
            found.append(load.run_with_own_cache("place", "plan_step", what, home, **asked))
    return found


def _list_functions(program: Path, compiled: Path) -> list[tuple[str | None, Path]]:
    """Return each function with a compiled program whose default it is, or (None, compiled) if there is only one."""
    described = package.read(program, kinds=("mlProgram", "pipeline")).spec.description
    names = [item.name for item in described.functions]
    if not names:
        return [(None, compiled)]
    found: list[tuple[str | None, Path]] = [(described.defaultFunctionName, compiled)]
    for name in names:
        if name != described.defaultFunctionName:
            work = Path(tempfile.mkdtemp(prefix="function-"))
            copy = identity.write_with_default(program, work / program.name, name)
            found.append((name, compile.compile_one(copy, work / f"{program.stem}.mlmodelc", "coremltools")))
    return found


def plan_step(request: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of one compiled program, with the compiler's notes; runs in a process of its own."""
    params, begun = request["params"], time.time()
    if params.get("device") == "usb":
        plan = _remote.load_plan(Path(request["program"]), params["compute_units"])
    else:
        ct = import_coremltools()
        units = ct.ComputeUnit[COMPUTE_UNITS[params["compute_units"]]]
        plan = ct.models.compute_plan.MLComputePlan.load_from_path(request["program"], compute_units=units)
    copied = copies.copy_programs(Path(request["home"]), Path(request["keep"]), begun - _CLOCKS_S)
    held = {"files": copied.files, "left": copied.skipped}
    if plan is None:
        return {"rows": [], "compiled": held}
    rows = [
        {"chunk": request["chunk"], **row} for row in list_plan_rows(plan.model_structure, plan, request["function"])
    ]
    noted = [analytics.read(path) for path in analytics.find_files(Path(request["home"]))]
    return {"rows": add_notes(rows, [{**row} for entry in noted for row in entry]), "compiled": held}


def list_plan_rows(structure: Any, plan: Any, wanted: str | None = None) -> list[dict[str, Any]]:
    """Return a row for each op of an MLModelStructure in file order, blocks inside ops after their op.

    function, name (its first output), op_type (without opset), preferred unit or None, supported units, cost weight.
    Of a multifunction program only the function `wanted`; of a pipeline its ML Programs.
    """
    if structure.pipeline is not None:
        parts = [
            (name, part) for name, part in _list_pairs(structure.pipeline.sub_models) if part.program or part.pipeline
        ]
        return [{**row, "part": name} for name, part in parts for row in list_plan_rows(part, plan)]
    if structure.program is None:
        raise StageError("MLComputePlan holds no ML Program; older kinds of models have no ops to place")
    rows: list[dict[str, Any]] = []
    for name, function in structure.program.functions.items():
        if wanted is None or name == wanted or len(structure.program.functions) == 1:
            rows += _list_block_rows(function.block, name, plan)
    return rows


def _list_pairs(parts: Any) -> list[tuple[str, Any]]:
    return list(parts.items()) if isinstance(parts, dict) else list(parts)


def _list_block_rows(block: Any, function: str, plan: Any) -> list[dict[str, Any]]:
    rows = []
    for op in block.operations:
        op_type = op.operator_name.split(".")[-1]
        if op_type.startswith("const"):  # const and constexpr_*
            continue
        usage = plan.get_compute_device_usage_for_mlprogram_operation(op)
        estimate = plan.get_estimated_cost_for_mlprogram_operation(op)
        rows.append(
            {
                "function": function,
                "name": op.outputs[0].name if op.outputs else "",
                "op_type": op_type,
                "preferred": None if usage is None else name_unit(usage.preferred_compute_device),
                "supported": [] if usage is None else [name_unit(device) for device in usage.supported_compute_devices],
                "cost": 0.0 if estimate is None else estimate.weight,
            }
        )
        for inner in op.blocks:
            rows += _list_block_rows(inner, function, plan)
    return rows


def name_unit(device: Any) -> str | None:
    """Return "cpu", "gpu" or "ane" for a compute device; its class may be coremltools' own or a remote device's."""
    return next((_UNITS[kind.__name__] for kind in type(device).__mro__ if kind.__name__ in _UNITS), None)


def add_notes(rows: list[dict[str, Any]], noted: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with the compiler's notes on the op of the same name and type, if there are any."""
    by_name = {(entry["name"], entry["op_type"]): entry for entry in noted}
    found = []
    for row in rows:
        entry = by_name.get((row["name"], row["op_type"]))
        found.append(row if entry is None else {**row, **{name: entry[name] for name in _NOTES}})
    return found


def summarise(table: Sequence[dict[str, Any]], chip: str, compute_units: str) -> Placement:
    """Return the record's placement entry. Raises Unavailable if no op has a device."""
    placed = [row for row in table if row["preferred"] is not None]
    if not placed:
        raise Unavailable(
            "MLComputePlan names no device for any op of this program; it does so for deployment targets below iOS17: "
            "try target=iOS17 or newer"
        )
    chunks = dict.fromkeys((row["chunk"], row["function"]) for row in placed)
    parts = [
        _summarise_part(
            [row for row in placed if (row["chunk"], row["function"]) == (chunk, function)], chunk, function
        )
        for chunk, function in chunks
    ]
    return Placement(
        kind="planned",
        chip=chip,
        compute_units=compute_units,
        ops=_count_ops(placed),
        cost_share=_sum_shares(placed),
        segments=sum(part.segments for part in parts),
        transitions=sum(part.transitions for part in parts),
        chunks=parts,
        reasons=group_reasons(placed),
        unplaced=len(table) - len(placed),
    )


def _summarise_part(rows: Sequence[dict[str, Any]], chunk: str | None, function: str | None) -> Part:
    segments, transitions = count_segments([row["preferred"] for row in rows])
    return Part(chunk, _count_ops(rows), _sum_shares(rows), segments, transitions, function)


def _count_ops(rows: Sequence[dict[str, Any]]) -> Ops:
    return Ops(**{unit: sum(row["preferred"] == unit for row in rows) for unit in _UNITS.values()}, total=len(rows))


def _sum_shares(rows: Sequence[dict[str, Any]]) -> Shares:
    total = sum(row["cost"] for row in rows) or 1.0
    costs = {unit: sum(row["cost"] for row in rows if row["preferred"] == unit) for unit in _UNITS.values()}
    return Shares(**{unit: cost / total for unit, cost in costs.items()})


def group_reasons(rows: Sequence[dict[str, Any]]) -> list[Reason]:
    """Return the reasons why ops are not planned for the Neural Engine, in the compiler's words, most costly first."""
    total = sum(row["cost"] for row in rows) or 1.0
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
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
            source="analytics.mil" if members[0].get("why_not_ane") else "MLComputePlan",
        )
        for reason, members in groups.items()
    ]
    return sorted(found, key=lambda entry: -entry.cost_share)

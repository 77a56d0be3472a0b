"""The unit on which Core ML plans to run each op of an ML Program, from MLComputePlan, and the files that Core ML
compiled for the plan.

Each program and each function of it is planned in a process of its own (steps.py): planning compiles for the Neural
Engine, in full. MLComputePlan of coremltools 9.0 plans a package's default function alone; another one is planned from
a copy in which it is the default. The compiler's own notes on each op (mil/analytics.py: its estimate, the backend that
it chose, why not the Neural Engine) are added to the rows if they could be read. Constants are left out, as they do not
run.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ane_sweep.bridge import conversion
from ane_sweep.errors import ConfigError, StageError
from ane_sweep.hwx import comparison, copies, files
from ane_sweep.mil import analytics, identity, package
from ane_sweep.placement import chips, judge, predict
from ane_sweep.placement.compiled import compare_with_tasks
from ane_sweep.placement.types import Placement
from ane_sweep.worker.params import CoreMLParams, Params
from ane_sweep.worker.programs import Held, PlannedOp, ProgramPlan
from ane_sweep.worker.programs.mlprogram.compile import compile_one
from ane_sweep.worker.programs.mlprogram.steps import run_with_own_cache
from ane_sweep.worker.runtimes import _remote, coreml
from ane_sweep.worker.runtimes._chain import COMPUTE_UNITS
from ane_sweep.worker.runtimes._coremltools import import_coremltools

if TYPE_CHECKING:
    from coremltools.models.compute_plan import MLComputePlan, MLModelStructure, MLModelStructureProgramBlock

SOURCE, IS_PRICED = "MLComputePlan", True
_UNITS = {"MLCPUComputeDevice": "cpu", "MLGPUComputeDevice": "gpu", "MLNeuralEngineComputeDevice": "ane"}
_CLOCKS_S = 2.0  # by which a file's time may lie before the clock's


class PlanRequest(Params, frozen=True):
    """The request of `plan_step`: a compiled program, its chunk and function, the task's params, and folders."""

    program: str
    chunk: str | None
    function: str | None
    params: CoreMLParams
    home: str
    keep: str = ""


def plan(params: dict[str, object], inputs: Mapping[str, Path], keep: Path) -> list[ProgramPlan]:
    """Plan each program and function in a separate process, in the order they run."""
    found = []
    programs = package.program_paths(inputs["program"])
    for program, compiled in zip(programs, coreml.find_compiled(inputs["compiled"], programs)):
        for function, path in _list_functions(program, compiled):
            chunk = program.stem if len(programs) > 1 else None
            what = f"place {program.stem}" + (f" ({function})" if function else "")
            home = Path(tempfile.mkdtemp(prefix="home-"))
            made = run_with_own_cache(
                __name__, "plan_step", what, home,
                program=str(path), chunk=chunk, function=function, params=params, keep=str(keep),
            )  # fmt: skip
            found.append(conversion.convert(made, ProgramPlan))
    return found


def _list_functions(program: Path, compiled: Path) -> list[tuple[str | None, Path]]:
    """Return each function with a compiled program in which it is the default; (None, compiled) if there is only one."""
    described = package.read(program, kinds=("mlProgram", "pipeline")).spec.description
    names = [item.name for item in described.functions]
    if not names:
        return [(None, compiled)]
    found: list[tuple[str | None, Path]] = [(described.defaultFunctionName, compiled)]
    for name in names:
        if name != described.defaultFunctionName:
            work = Path(tempfile.mkdtemp(prefix="function-"))
            copy = identity.write_with_default(program, work / program.name, name)
            found.append((name, compile_one(copy, work / f"{program.stem}.mlmodelc", "coremltools")))
    return found


def plan_step(values: dict[str, object]) -> ProgramPlan:
    """Return the plan of one compiled program, with the compiler's notes; runs in a separate process."""
    request, begun = PlanRequest.read(values), time.time()
    units, home = request.params.compute_units, Path(request.home)
    if request.params.device == "usb":
        plan = _remote.load_plan(Path(request.program), units)
    else:
        ct = import_coremltools()
        unit = ct.ComputeUnit[COMPUTE_UNITS[units]]
        plan = ct.models.compute_plan.MLComputePlan.load_from_path(request.program, compute_units=unit)
    copied = copies.copy_programs(home, Path(request.keep), begun - _CLOCKS_S)
    held: Held = {"files": copied.files, "left": copied.skipped}
    if plan is None:
        return {"rows": [], "compiled": held}
    rows: list[PlannedOp] = [
        {"chunk": request.chunk, **row} for row in list_plan_rows(plan.model_structure, plan, request.function)
    ]
    notes = [note for path in analytics.find_files(home) for note in analytics.read(path)]
    return {"rows": add_notes(rows, notes), "compiled": held}


def list_plan_rows(structure: "MLModelStructure", plan: "MLComputePlan", wanted: str | None = None) -> list[PlannedOp]:
    """Return a row for each op of an MLModelStructure in file order, blocks inside ops after their op.

    function, name (its first output), op_type (without opset), preferred unit or None, supported units, cost weight.
    Of a multifunction program only the function `wanted`; of a pipeline its ML Programs.
    """
    if structure.pipeline is not None:
        models = structure.pipeline.sub_models
        named = models.items() if isinstance(models, Mapping) else models
        parts = [(name, part) for name, part in named if part.program or part.pipeline]
        return [{**row, "part": name} for name, part in parts for row in list_plan_rows(part, plan)]
    if structure.program is None:
        raise StageError("MLComputePlan holds no ML Program; older kinds of models have no ops to place")
    rows: list[PlannedOp] = []
    for name, function in structure.program.functions.items():
        if wanted is None or name == wanted or len(structure.program.functions) == 1:
            rows += _list_block_rows(function.block, name, plan)
    return rows


def _list_block_rows(block: "MLModelStructureProgramBlock", function: str, plan: "MLComputePlan") -> list[PlannedOp]:
    rows: list[PlannedOp] = []
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


def name_unit(device: object) -> str | None:
    """Return "cpu", "gpu" or "ane" for a compute device; its class may be coremltools' own or a remote device's."""
    return next((_UNITS[kind.__name__] for kind in type(device).__mro__ if kind.__name__ in _UNITS), None)


def add_notes(rows: Sequence[PlannedOp], notes: Sequence[analytics.OpNote]) -> list[PlannedOp]:
    """Return the rows with the compiler's notes on the op of the same name and type added."""
    by_name = {(note["name"], note["op_type"]): note for note in notes}
    found: list[PlannedOp] = []
    for row in rows:
        note = by_name.get((row["name"], row["op_type"]))
        if note is not None:
            row = {
                **row,
                "backend": note["backend"],
                "estimated_ms": note["estimated_ms"],
                "why_not_ane": note["why_not_ane"],
            }
        found.append(row)
    return found


def describe_compiled(
    plans: Sequence[ProgramPlan], folder: Path, summary: Placement, program: Path
) -> dict[str, object]:
    """Return files, tasks, and Neural Engine ops per task, as Core ML planned and as we predict them, for the record.

    `tasks` stays None unless a program was found and decoded; `left` lists the reasons for files that were not taken.
    """
    names = sorted({name for plan in plans for name in plan["compiled"]["files"]})
    left = sorted({reason for plan in plans for reason in plan["compiled"]["left"]})
    found = files.read([folder / name for name in names])
    decoded = [item for item in found.programs if item.undecoded is None or item.declared_tasks is not None]
    content: dict[str, object] = {"files": names, "left": left + found.errors, "tasks": None}
    if not decoded:
        return content
    prediction = _predict(program, summary)
    predicted = {} if prediction is None else compare_with_tasks(prediction, decoded)
    return content | {
        "tasks": comparison.count_ops_per_task(0, decoded)["tasks"],
        "targets": sorted({item.generation.name for item in decoded}),
        "planned": comparison.count_ops_per_task(summary.ops.ane, decoded),
        # `ane-sweep hwx FILE --program PACKAGE` shows the rows of single tasks
        "predicted": {name: value for name, value in predicted.items() if name != "rows"} or None,
    }


def _predict(program: Path, summary: Placement) -> predict.Prediction | None:
    """Return our prediction for the plan's chip and units, or None for an unknown chip."""
    try:
        chip = chips.get(summary.chip or "")
    except ConfigError:
        return None
    return predict.predict_chain(judge.load(program), chip, summary.compute_units)

"""The programs that Core ML compiled for the Neural Engine, compared with its plan and with our prediction."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ane_sweep.errors import ConfigError
from ane_sweep.hwx import comparison, files
from ane_sweep.machine.calibrated import find_measurements
from ane_sweep.placement import chips, compiled, judge, predict
from ane_sweep.placement.predict import Prediction
from ane_sweep.placement.types import Placement


def describe_compiled(
    steps: Sequence[dict[str, Any]], folder: Path, planned: Placement, program: Path
) -> dict[str, Any]:
    """Return files, tasks, and Neural Engine ops per task, as Core ML planned and as we predict them, for the record.

    `tasks` stays None unless a program was found and decoded; `left` lists the reasons for files that were not taken.
    """
    names = sorted({name for step in steps for name in step["compiled"]["files"]})
    left = sorted({reason for step in steps for reason in step["compiled"]["left"]})
    found = files.read([folder / name for name in names])
    decoded = [item for item in found.programs if item.undecoded is None or item.declared_tasks is not None]
    content: dict[str, Any] = {"files": names, "left": left + found.errors, "tasks": None}
    if not decoded:
        return content
    prediction = _predict(program, planned)
    return content | {
        "tasks": comparison.count_ops_per_task(0, decoded)["tasks"],
        "targets": sorted({item.generation.name for item in decoded}),
        "planned": comparison.count_ops_per_task(planned.ops.ane, decoded),
        "predicted": None if prediction is None else _drop_rows(compiled.compare_with_tasks(prediction, decoded)),
    }


def _drop_rows(content: dict[str, Any]) -> dict[str, Any]:
    """Drop the row of each task; `ane-sweep hwx FILE --program PACKAGE` shows those."""
    return {name: value for name, value in content.items() if name != "rows"}


def _predict(program: Path, planned: Placement) -> Prediction | None:
    """Return our prediction for the plan's chip and units, or None for a chip that no table has."""
    try:
        chip = chips.get(planned.chip or "", find_measurements)
    except ConfigError:
        return None
    return predict.predict_chain(judge.load(program), chip, planned.compute_units)

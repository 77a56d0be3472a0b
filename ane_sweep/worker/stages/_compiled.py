"""What Core ML made of a program for the Neural Engine, beside what was planned and predicted of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ane_sweep.bridge.figures import Placement
from ane_sweep.errors import ConfigError
from ane_sweep.hwx import beside, files
from ane_sweep.placement import chips, judge, predict


def read(steps: Sequence[dict[str, Any]], folder: Path, planned: Placement, program: Path) -> dict[str, Any]:
    """For the record: the files, their tasks, and ops of the Neural Engine a task, as Core ML planned and as we predict.

    `tasks` is None where no program was found or none could be decoded; `left` says what was seen and not taken.
    """
    names = sorted({name for step in steps for name in step["compiled"]["files"]})
    left = sorted({reason for step in steps for reason in step["compiled"]["left"]})
    found = files.read([folder / name for name in names])
    decoded = [item for item in found.programs if item.undecoded is None or item.told_tasks is not None]
    content: dict[str, Any] = {"files": names, "left": left + found.errors, "tasks": None}
    if not decoded:
        return content
    predicted = _predicted_ops(program, planned)
    return content | {
        "tasks": beside.ops_per_task(0, decoded)["tasks"],
        "targets": sorted({item.generation.name for item in decoded}),
        "planned": beside.ops_per_task(planned.ops.ane, decoded),
        "predicted": None if predicted is None else beside.ops_per_task(predicted, decoded),
    }


def _predicted_ops(program: Path, planned: Placement) -> int | None:
    """Ops that are predicted for the Neural Engine of the same chip; None of a chip that no table has."""
    try:
        chip = chips.get(planned.chip or "")
    except ConfigError:
        return None
    return predict.predict_chain(judge.load(program), chip, planned.compute_units).summary().ops.ane

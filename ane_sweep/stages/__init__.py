"""The stages of a cell, one verb a file, one signature.

    run(params, inputs, out) -> StageResult

`params`  is what enters the task's key (plain JSON values);
`inputs`  maps a role to the folder of an upstream artifact: "checkpoint", "program", "reference";
`out`     is an empty folder; whatever is left in it becomes the task's artifact.

Modules here import torch, coremltools and transformers inside functions only: the planner reads this package's names.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class StageResult:
    """What a stage found out, beside the files that it left in `out`.

    metrics   entries of a record's `metrics`: see `metric`
    realised  what really happened (runtime, numerics, inputs ...), merged into the record's `realised`
    facts     for later tasks and the planner (cut_points, parameter_bytes ...), never shown as a result
    """

    metrics: list[dict[str, Any]] = field(default_factory=list)
    realised: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def metric(
    name: str, value: Any, unit: str, *, kind: str = "measured", source: str | None = None, chip: str | None = None
) -> dict[str, Any]:
    """One entry of a record's `metrics`; `kind` is measured, planned, estimated, predicted or published."""
    return {"name": name, "value": value, "unit": unit, "kind": kind, "source": source, "chip": chip}

"""The stages of a cell: one file each, named by a verb, with one signature.

    run(params, inputs, out) -> StageResult

`params`  are the JSON values that enter the task's key; each stage reads its own ones as the type `Params`;
`inputs`  maps a role to the folder of an upstream artifact: "checkpoint", "program", "reference";
`out`     is an empty folder; the files written to it become the task's artifact.

The planner reads STAGE of a module without importing it. Modules that run programs import torch and transformers inside
functions only: a process that times a program must not load them.
"""

from dataclasses import dataclass, field
from typing import Any

from ane_sweep.bridge.figures import Metric, Timing
from ane_sweep.placement.types import Placement


@dataclass
class StageResult:
    """The result of a stage, apart from the files that it wrote to `out`.

    realised  the actual settings (runtime, numerics, inputs ...), merged into the record's `realised`
    facts     for later tasks and the planner (cut_points, parameter_bytes ...), never shown as a result
    timing    the timing, from a stage that times
    doubts    warnings as sentences: the cell is done, but not exactly as requested
    """

    metrics: list[Metric] = field(default_factory=list)
    realised: dict[str, object] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    timing: Timing | None = None
    placement: list[Placement] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

"""The outcome of a task: its status, and what it left."""

from dataclasses import dataclass, field
from pathlib import Path

from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.task import TaskResult

DONE = (StageStatus.OK, StageStatus.CACHED)


@dataclass
class Outcome:
    """The end of a task: `folder` holds its artifact, and the file `stderr` its output.

    `result` is empty if no process ran.
    """

    status: StageStatus
    reason: str | None = None
    result: TaskResult = field(default_factory=lambda: TaskResult("", "", "failed"))
    folder: Path | None = None
    stderr: Path | None = None

    @property
    def done(self) -> bool:
        return self.status in DONE

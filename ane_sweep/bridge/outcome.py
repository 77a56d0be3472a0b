"""How a task ended."""

from dataclasses import dataclass, field
from pathlib import Path

from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.task import TaskResult

DONE = (StageStatus.OK, StageStatus.CACHED)


@dataclass
class Outcome:
    """How a task ended and, when it did, what it left: `folder` holds its artifact, the file `stderr` what it printed.

    `result` is empty where no process ran.
    """

    status: StageStatus
    reason: str | None = None
    result: TaskResult = field(default_factory=lambda: TaskResult("", "", "failed"))
    folder: Path | None = None
    stderr: Path | None = None

    @property
    def done(self) -> bool:
        return self.status in DONE

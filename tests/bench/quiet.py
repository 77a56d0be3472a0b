"""what the parent does while a child is timed: its CPU, as a share of one core"""

import os
import tempfile
import time
from pathlib import Path

from ane_sweep.bridge.task import TaskRequest
from ane_sweep.runner import isolate
from tests.bench import Row

SECONDS = 10


def run() -> list[Row]:
    """A worker that hangs (the crash test's own fault) for ten seconds, waited for exactly as a timed task is."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "out").mkdir()
        task = TaskRequest("latency", "0" * 64, {"options": {"fault": "hang"}}, {}, root / "out", root / "tmp")
        before, began = os.times(), time.perf_counter()
        isolate.run_task(task, root / "task", timeout_s=SECONDS, watch_memory=False)
        wall = time.perf_counter() - began
        after = os.times()
    cpu = after.user + after.system - before.user - before.system
    return [Row("parent's CPU while a child is timed", f"{100 * cpu / wall:.3f} %", bar="under 1 % of a core")]

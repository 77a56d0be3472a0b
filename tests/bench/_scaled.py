"""One sweep of N cells, planned, and walked with processes that are played: what is left is the parent's own work.

Prints one line of JSON: seconds of CPU and the peak of memory after each step, `python -P -m tests.bench._scaled CELLS plan|walk`.
"""

import io
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from rich.console import Console

from ane_sweep.bridge import record
from ane_sweep.bridge.figures import Metric, Timing
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.task import TaskRequest, TaskResult
from ane_sweep.machine import host
from ane_sweep.planner import config, overview
from ane_sweep.planner.matrix import Request
from ane_sweep.planner.settle import plan_for
from ane_sweep.report import page
from ane_sweep.results import assemble
from ane_sweep.runner import display, isolate
from ane_sweep.runner.executors import local, make_runner
from ane_sweep.runner.gate import TimingGate
from ane_sweep.store import files, runs
from ane_sweep.store.cache import Store, open_store

T = TypeVar("T")
MATRIX = ["-m", "model=tiny-gpt2", "weights=random", "runtime=reference", "latency.repeats=4", "gate.wait_s=0"]
MADE = {
    "convert": [("package_bytes", 1e6, "bytes")],
    "score": [("psnr_db", 60.0, "dB")],
    "latency": [("latency_median_ms", 1.0, "ms"), ("latency_iqr_ms", 0.02, "ms")],
}
ROOM = 1 << 40  # bytes: so that neither memory nor disk is what holds it up


def main(cells: int, how: str) -> None:
    said: dict[str, dict[str, float]] = {}

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def step(name: str, do: Callable[[], T]) -> T:
        before, began = peak(), time.process_time()
        found = do()
        said[name] = {"s": time.process_time() - began, "before": before, "peak": peak()}
        return found

    memory = Path("/dev/shm")  # a disk's flushes are not our work
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        out = Path(folder)
        request = step("cells", lambda: config.load([*MATRIX, f"seed=range(0,{cells})", f"max_cells={cells}"]))
        with open_store(out) as store:
            plan = step("plan", lambda: plan_for(request, store, out))
            step("told", lambda: overview.describe(plan, store.has, ROOM, (ROOM, ROOM)))
            if how == "walk":
                _walked(plan, request, store, out, step)
            page_bytes = sum(path.stat().st_size for path in out.glob("runs/*/report.html"))
    print(json.dumps({"cells": len(plan.cells), "tasks": len(plan.tasks), "steps": said, "page": page_bytes}))


def _walked(
    plan: Plan, request: Request, store: Store, out: Path, step: Callable[[str, Callable[[], Any]], Any]
) -> None:
    isolate.run_task = _played  # type: ignore[assignment]
    TimingGate.wait = lambda *_: SimpleNamespace()  # type: ignore[assignment,method-assign]  # it looks for 0.2 s, idle
    run = runs.open_run(out, plan, [], request.settings)
    view = display.make(plan, Console(file=io.StringIO(), width=160))
    runner = make_runner(plan, run, store, request.settings, view)
    runner.budget = ROOM
    outcomes = step("walk", lambda: local.execute(runner, request.settings))
    records = step("records", lambda: _records(plan, run, outcomes))
    step("written", lambda: _end(run, records))
    step("report", lambda: page.write(run.folder))


def _records(plan: Plan, run: runs.Run, outcomes: dict[str, Any]) -> list[record.Record]:
    return assemble.make_records(
        plan,
        outcomes,
        sweep=run.stamp,
        host=host.fingerprint(),
        toolchain=dict(host.toolchain()),
        files=files.artifact_files,
    )


def _end(run: runs.Run, records: list[Any]) -> None:
    record.write_records(run.folder, records)
    run.finish()


def _played(request: TaskRequest, folder: Path, **_: Any) -> TaskResult:
    """A process that ends at once and leaves one small file, and figures that follow from its key: no two cells' are alike."""
    part = int(request.key[:6], 16) / 16**6
    ms = 1 + part
    timing = Timing(1, ms, samples_ms=[0.99 * ms, ms, 1.01 * ms]) if request.stage == "latency" else None
    metrics = [Metric(name, at + part, unit, source="reference") for name, at, unit in MADE.get(request.stage, ())]
    (request.out / "made").write_text(request.key)
    result = TaskResult(
        request.stage, request.key, "ok", metrics=metrics, timing=timing, seconds=0.01, peak_bytes=1, exit=0
    )
    folder.mkdir(parents=True, exist_ok=True)
    result.write(folder / "result.json")
    return result


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

"""timings of forked processes against those of cold ones: called different how often (32 rounds: some 10 minutes)"""

import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from ane_sweep.bridge import disk
from ane_sweep.bridge.task import TaskRequest
from ane_sweep.runner import fork_server, isolate
from tests.bench import Row, _pool, alarms, ane_sweep

ROUNDS, SIZES = 32, (3, 5, 8)
# A pool as alarms.py reads it: two slots of cold processes, and in the place of delayed ones those that were forked.
COLD, FORKED = ("a", "b"), "delayed"
BAR = "as often as cold from cold"


def run(path: Path | None = None, rounds: int = ROUNDS) -> list[Row]:
    """Forked from a parent of each round's own, as in a sweep; every process times as a sweep's."""
    path = path or Path(os.environ.get("ANE_SWEEP_OUT") or "outputs") / "bench" / "starts.json"
    pool = _taken(path, rounds)
    rows = [Row(f"pool {path}: {len(pool['runs'])} processes", *alarms._realised(pool))]
    for way in ("across sweeps", "within a sweep"):
        for size in SIZES:
            forked, cold = (alarms._hits(pool, way, size, other) for other in (FORKED, "b"))
            if forked and cold:
                rows.append(
                    Row(f"called different, {way}, {size} processes a side", _said(forked), _said(cold), bar=BAR)
                )
    return rows


def _said(hits: dict[str, int]) -> str:
    low, high = alarms.binomial(hits["both"], alarms.DRAWS)
    return f"{100 * hits['both'] / alarms.DRAWS:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _taken(path: Path, rounds: int) -> dict[str, Any]:
    pool = disk.read_json(path) or {"programs": {}, "runs": []}
    done = max((run["round"] for run in pool["runs"]), default=0)
    if done >= rounds:
        return pool
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, fork_server.ForkServers() as fork_servers:
        ane_sweep([*_pool.PREPARE, "gate.wait_s=0"], Path(folder))
        tasks = _pool._tasks(Path(folder))
        pool["programs"] |= {name: {"delay_ms": 0.0} for name in tasks}
        for number in range(done + 1, rounds + 1):
            fork_servers.begin_round(number)
            wanted = [(program, slot) for program in tasks for slot in (*COLD, FORKED)]
            for position, (program, slot) in enumerate(random.Random(number).sample(wanted, len(wanted))):
                took = _one(tasks[program], Path(folder), fork_servers if slot == FORKED else None)
                pool["runs"].append({"round": number, "position": position, "program": program, "slot": slot, **took})
            disk.write_json(path, pool)
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
    return pool


def _one(asked: Path, folder: Path, fork_servers: fork_server.ForkServers | None) -> dict[str, Any]:
    task = TaskRequest.read(asked)
    loads = fork_server.list_imports(task.stage, task.params)
    result = isolate.run_task(
        task, folder / "task", timeout_s=600, watch_memory=False, fork_servers=fork_servers, loads=loads
    )
    if result.timing is None:
        raise RuntimeError(f"a timing ended as {result.status}: {result.reason}")
    return {"median_ms": result.timing.median_ms, "samples_ms": result.timing.samples_ms}

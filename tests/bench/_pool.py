"""A pool of fresh-process timings of tiny programs, taken in rounds; and the process that takes one of them.

    {"programs": {name: {"delay_ms"}}, "runs": [{"round", "position", "program", "slot", "median_ms", "samples_ms"}]}

Each round takes every program three times, shuffled: slots `a` and `b` as the program is, slot `delayed` with ten per
cent of its median slept inside the timed call. A pool is a JSON file, goes on where it stopped, and can be analysed
again. As a script: `_pool.py TASK_JSON DELAY_MS` runs the latency stage of a sweep's own task.json, once.
"""

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from ane_sweep.bridge import disk
from ane_sweep.bridge.task import TaskRequest
from ane_sweep.runner.isolate import child_environment
from ane_sweep.worker import runtimes
from tests.bench import ane_sweep

SLOTS = ("a", "b", "delayed")
DELAY_SHARE = 0.1
PREPARE = [
    "-m",
    "model=tiny-gpt2,tiny-bert",
    "weights=random",
    "seq_len=64",
    "runtime=reference",
    "latency.repeats=1",
    "tracking.enabled=false",
]
_SPIN_MS = 0.2  # the end of a delay is waited for awake: sleeping overshoots by a tenth of a millisecond


def take(path: Path, rounds: int) -> dict[str, Any]:
    """The pool in `path` with at least `rounds` rounds: those that are missing are taken now and written one by one."""
    pool = disk.read_json(path) or {"programs": {}, "runs": []}
    done = max((run["round"] for run in pool["runs"]), default=0)
    if done >= rounds:
        return pool
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        ane_sweep([*PREPARE, "gate.wait_s=0"], Path(folder))
        tasks = _tasks(Path(folder))
        for name, task in tasks.items():
            if name not in pool["programs"]:
                medians = [_one(task, 0.0)["median_ms"] for _ in range(3)]
                pool["programs"][name] = {"delay_ms": DELAY_SHARE * statistics.median(medians)}
        for number in range(done + 1, rounds + 1):
            pool["runs"] += _round(number, tasks, pool["programs"])
            disk.write_json(path, pool)
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
    return pool


def _tasks(out: Path) -> dict[str, Path]:
    """Model name -> the task.json of its timing, as a sweep left it."""
    found = {}
    for line in next(out.glob("runs/*/records.jsonl")).read_text().splitlines():
        record = json.loads(line)
        key = next(stage["key"] for stage in record["stages"] if stage["stage"] == "latency")
        found[record["cell"]["model"]] = next(out.glob(f"runs/*/tasks/latency-{key[:12]}/task.json"))
    return found


def _round(number: int, tasks: dict[str, Path], programs: dict[str, Any]) -> list[dict[str, Any]]:
    wanted = [(program, slot) for program in tasks for slot in SLOTS]
    runs = []
    for position, (program, slot) in enumerate(random.Random(number).sample(wanted, len(wanted))):
        delay = programs[program]["delay_ms"] if slot == "delayed" else 0.0
        timing = _one(tasks[program], delay)
        kept = {name: timing[name] for name in ("median_ms", "samples_ms")}
        runs.append({"round": number, "position": position, "program": program, "slot": slot, **kept})
    return runs


def _one(task: Path, delay_ms: float) -> dict[str, Any]:
    """One fresh process; its environment is a worker's."""
    command = [sys.executable, "-P", "-m", "tests.bench._pool", str(task), str(delay_ms)]
    with tempfile.TemporaryDirectory() as tmp:
        done = subprocess.run(command, env=child_environment(Path(tmp)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a timing ended with {done.returncode}:\n{done.stderr[-2000:]}")
    timing: dict[str, Any] = json.loads(done.stdout)
    return timing


def _delayed(predict: Any, delay_ms: float) -> Any:
    def call(values: Any) -> Any:
        end = time.perf_counter() + delay_ms / 1000
        if delay_ms > _SPIN_MS:
            time.sleep((delay_ms - _SPIN_MS) / 1000)
        while time.perf_counter() < end:
            pass
        return predict(values)

    return call


def _child(task_path: str, delay_ms: float) -> None:
    from ane_sweep.worker.stages import latency

    task = TaskRequest.read(Path(task_path))
    runtime: Any = runtimes.get(task.params["runtime"])
    load = runtime.load

    def slow(params: Any, inputs: Any) -> Any:
        loaded = load(params, inputs)
        loaded.predict = _delayed(loaded.predict, delay_ms)
        return loaded

    if delay_ms:
        runtime.load = slow
    with tempfile.TemporaryDirectory() as out:
        timing = latency.run(task.params, task.inputs, Path(out)).timing
        print(json.dumps(msgspec.to_builtins(timing)))


if __name__ == "__main__":
    _child(sys.argv[1], float(sys.argv[2]))

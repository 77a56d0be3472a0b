"""Conversion of JSON values to our types by several threads at once, each time in a fresh process."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "ane_sweep"
CONVERTERS = {"msgspec.convert", "msgspec.json.decode"}
PROCESSES, AT_ONCE = 40, 8
RACE = """
import sys, threading
from ane_sweep.bridge import conversion
from ane_sweep.bridge.figures import Timing
from ane_sweep.placement.types import Placement
from ane_sweep.bridge.record import Record
from ane_sweep.bridge.task import TaskResult
from ane_sweep.runner.remote_task import RemoteResult

timing = {"round": 1, "median_ms": 2.0}
ops = {"cpu": 0, "gpu": 0, "ane": 1, "total": 1}
shares = {"cpu": 0.0, "gpu": 0.0, "ane": 1.0}
placement = {
    "kind": "predicted", "chip": "m4", "compute_units": "all", "ops": ops, "cost_share": shares, "segments": 1,
    "transitions": 0, "chunks": [{"chunk": None, "ops": ops, "cost_share": shares, "segments": 1, "transitions": 0}],
}
metric = {"name": "psnr_db", "value": 60.0}
result = {
    "stage": "score", "key": "k", "status": "ok", "metrics": [metric], "facts": {"timing": timing, "placement": [placement]},
}
record = {
    "schema": 1, "sweep": "s", "cell_key": "k", "cell": {}, "status": "ok", "metrics": [metric], "placement": [placement],
    "timings": [timing], "stages": [{"stage": "score", "status": "ok"}],
}
jobs = [
    lambda: TaskResult.from_plain(result),
    lambda: Record.from_dict(record),
    lambda: conversion.convert(placement, Placement),
    lambda: conversion.convert(timing, Timing),
    lambda: conversion.decode('{"machine": "m", "host": {}, "toolchain": {}}', RemoteResult),
]
first = int(sys.argv[1]) % len(jobs)  # each kind is the first one in some of the processes
sys.setswitchinterval(1e-6)
done, together = [], threading.Barrier(4)

def convert_all():
    for job in jobs[first:] + jobs[:first]:
        together.wait()
        done.append(job())

threads = [threading.Thread(target=convert_all) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(done) == 4 * len(jobs)
"""


@pytest.mark.slow
def test_threads_that_convert_first_at_the_same_time_end_no_process():
    ends = []
    for begin in range(0, PROCESSES, AT_ONCE):
        commands = [[sys.executable, "-c", RACE, str(number)] for number in range(begin, begin + AT_ONCE)]
        running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
        ends += [(process.communicate(timeout=120)[1], process.returncode) for process in running]
    assert ends == [("", 0)] * PROCESSES


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_one_module_calls_the_converter_of_msgspec(path):
    calls = [node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    named = {ast.unparse(function) for function in calls if ast.unparse(function).startswith("msgspec.")}
    reading = {name for name in named if name in CONVERTERS or name.endswith("Decoder")}
    assert not reading or path == PACKAGE / "bridge" / "conversion.py", f"{path} calls {reading}"

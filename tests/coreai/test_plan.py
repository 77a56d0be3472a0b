"""The plan of Core AI on a stand-in: coreai-torch's own ComputePlan over scripted answers. Needs the extra `coreai`.

No Mac takes part, and the answers are constructed: which unit macOS 27 names for an op, and its words, only a Mac can confirm.
"""

import json
import os
import subprocess
import sys

import pytest

from ane_sweep.bridge import record
from ane_sweep.machine import coreai
from ane_sweep.machine.stand_in import VARIABLE
from ane_sweep.worker.programs.coreai import place

if reason := coreai.find_missing():
    pytest.skip(reason, allow_module_level=True)

WHY = "fp32 is not supported"
ANSWERS = [
    {"on": "plan", "units": "cpu_only", "preferred": "cpu"},
    {"on": "plan", "op": "transpose", "preferred": "none"},
    {"on": "plan", "op": "broadcasting_batch_matmul", "preferred": "ane"},
    {"on": "plan", "op": "broadcasting_add", "preferred": "gpu", "why": WHY},
]


@pytest.mark.slow
def test_a_plan_of_core_ai_is_the_placement_of_its_cells(tmp_path):
    script = {"name": "macos27", "source": "constructed", "answers": ANSWERS,
              "host": {"chip": "Apple M4", "system": "Darwin", "machine": "arm64", "os_build": "26A428"}}  # fmt: skip
    (tmp_path / "script.json").write_text(json.dumps(script))
    words = ["model=tiny-gpt2", "weights=random", "seq_len=16", "toolchain=coreai", "latency=off", "compute_units=all,cpu_only",
             "tracking.enabled=false", f"out={tmp_path / 'out'}"]  # fmt: skip
    env = {**os.environ, VARIABLE: str(tmp_path / "script.json")}
    done = subprocess.run(
        [sys.executable, "-m", "ane_sweep", "-m", *words], capture_output=True, text=True, env=env, timeout=300
    )
    (run,) = (tmp_path / "out" / "runs").iterdir()
    everything, cpu_only = record.read_records(run)
    assert everything.status == "ok", done.stdout + done.stderr
    (planned,) = everything.placement
    assert (planned.kind, planned.chip, planned.compute_units) == ("planned", "m4", "all")
    assert planned.ops.ane > 0 and planned.ops.gpu > 0 and planned.ops.cpu > 0 and planned.unplaced > 0
    assert {reason.source for reason in planned.reasons} == {place.SOURCE}
    assert WHY in {reason.reason for reason in planned.reasons}
    assert "planned_costs" not in everything.realised, "Core AI prices no op"
    (all_cpu,) = cpu_only.placement
    assert all_cpu.ops.cpu == all_cpu.ops.total


def test_an_op_of_several_units_counts_for_the_first_and_one_without_an_entry_for_none():
    rows = place.list_rows({
        "entries": [
            {"operation_id": 2, "devices": ["CPU", "NEURAL_ENGINE"], "residency": "PLACED", "validation": []},
            {"operation_id": 3, "devices": ["UNKNOWN"], "residency": "NO DEVICE", "validation": []},
            {"operation_id": 4, "devices": ["GPU"], "residency": "PLACED", "validation": ["too wide", "fp32"]},
        ],
        "operation_names": {1: "coreai.constant", 2: "coreai.add", 3: "coreai.mul", 4: "coreai.conv2d", 5: "coreai.reshape"},
    })  # fmt: skip
    assert [(row["op_type"], row["preferred"], row["why_not_ane"]) for row in rows] == [
        ("add", "ane", None), ("mul", None, None), ("conv2d", "gpu", "too wide; fp32"), ("reshape", None, None),
    ]  # fmt: skip

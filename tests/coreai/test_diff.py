"""`diff` of two assets: outputs and ops for real; plans and durations on a stand-in, through coreai-torch's own diffs.

Its answers are constructed: which unit macOS 27 names for an op, and how long it takes, only a Mac can confirm.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ane_sweep
from ane_sweep.machine import coreai
from ane_sweep.machine.stand_in import VARIABLE

if reason := coreai.find_missing():
    pytest.skip(reason, allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.ci]
ROOT = str(Path(__file__).parents[2])
SCRIPT = {
    "name": "macos27", "source": "constructed",
    "host": {"chip": "Apple M4", "system": "Darwin", "machine": "arm64", "os_build": "26A428"},
    "answers": [
        {"on": "plan", "op": "broadcasting_batch_matmul", "type": "f16", "preferred": "ane"},
        {"on": "plan", "op": "broadcasting_batch_matmul", "type": "f32", "preferred": "gpu", "why": "fp32 is not supported"},
        {"on": "profile", "op": "broadcasting_batch_matmul", "type": "f32", "ms": 0.5},
        {"on": "profile", "op": "broadcasting_batch_matmul", "type": "f16", "ms": 0.2},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """tiny-gpt2 in fp32 (a) and in fp16 (b), from one sweep."""
    folder = tmp_path_factory.mktemp("assets")
    words = [
        "model=tiny-gpt2",
        "weights=random",
        "seq_len=16",
        "toolchain=coreai",
        "precision=fp32,fp16",
        "latency=off",
    ]
    ane_sweep.sweep(*words, **{"tracking.enabled": False, "out": str(folder / "out")})
    for asset in (folder / "out").rglob("*.aimodel"):
        is_half = (asset / "main.mlirb").stat().st_size < 500_000
        shutil.copytree(asset, folder / ("b.aimodel" if is_half else "a.aimodel"))
    return folder


def run(folder, *words, script=None):
    env = {**os.environ, "PYTHONPATH": ROOT}
    if script:
        (folder / "script.json").write_text(json.dumps(script))
        env[VARIABLE] = str(folder / "script.json")
    return subprocess.run(
        [sys.executable, "-m", "ane_sweep", "diff", *words], cwd=folder, env=env, capture_output=True, text=True
    )


def test_an_asset_equals_itself_and_a_changed_one_names_its_ops(pair):
    same = run(pair, "a.aimodel", "a.aimodel", "--min-psnr", "200")
    assert same.returncode == 0 and "ops: the same graph, weights and all" in same.stdout, same
    assert (
        "logits: equal to the last bit, [1, 16, 1000]" in same.stdout
        and "macOS 27 alone plans and times" in same.stdout
    )
    np.save(pair / "ids.npy", np.ones((1, 16), np.int32))
    found = json.loads(run(pair, "a.aimodel", "a.aimodel", "--input", "ids.npy", "--json").stdout)
    assert found["same"] and found["outputs"]["logits"]["text"].startswith("equal to the last bit")
    assert "placement" not in found and "timing" not in found


def test_what_was_added_is_named_and_a_gate_closes(pair):
    other = run(pair, "a.aimodel", "b.aimodel", "--min-psnr", "200")
    assert other.returncode == 1 and "in B alone" in other.stdout and "1 cast" in other.stdout, other


def test_a_script_answers_where_ops_moved_and_what_it_cost(pair):
    done = run(pair, "a.aimodel", "b.aimodel", "--runs", "3", script=SCRIPT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    moved = [line for line in lines if "broadcasting_batch_matmul: GPU -> NEURAL_ENGINE" in line]
    assert len(moved) == 12 and all("A: fp32 is not supported" in line for line in moved), done.stdout
    assert "planned for cpu_and_ne, A to B: 13 ops moved" in done.stdout
    assert "medians, ms, B's run after A's: 12 of 13 groups of ops can be compared" in done.stdout
    assert sum(line == "  broadcasting_batch_matmul: 0.5 -> 0.2 (-0.3)" for line in lines) == 12
    untimed = {**SCRIPT, "answers": SCRIPT["answers"][:2]}
    done = run(pair, "a.aimodel", "b.aimodel", "--runs", "3", script=untimed)
    assert "durations: The before run attributed no dispatches" in done.stdout


def test_wrong_words_end_with_what_to_do(pair):
    (pair / "empty.aimodel").mkdir(exist_ok=True)
    for words, said in (
        (("a.aimodel", "empty.aimodel"), "empty.aimodel: coreai-core does not read it"),
        (("a.aimodel", "b.mlpackage"), "name one kind"),
        (("a.aimodel", "b.aimodel", "--numerics", "fp16"), "--numerics: of Core ML's packages"),
        (("a.aimodel", "b.aimodel", "--input", "y=ids.npy"), "no input is called 'y'; inputs: input_ids"),
        (("a.aimodel", "none.aimodel"), "no such asset"),
    ):
        done = run(pair, *words)
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done.stderr

"""Whole sweeps with runtime=coreml on the stand-in: every process is real, what Core ML would say is scripted.

The failure theatre: each cell of one sweep ends in one true record, and the texts are those that a user reads.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tiny import ONCE

from ane_sweep.bridge import record
from ane_sweep.bundles import bundle
from ane_sweep.machine.stand_in import VARIABLE

from .test_remote import phone
from .test_stages import took

QUICK = [
    "model=tiny-gpt2", "weights=random", "seq_len=16", "runtime=coreml", "latency.samples=3", "latency.warmup=1",
    ONCE, "gate.wait_s=0", "gate.busy=1", "chips=[m4]", "tracking.enabled=false",
]  # fmt: skip
ISSUE = "https://github.com/apple/coremltools/issues/2758"
COMPILE_FAILED = (
    "E5RT encountered an STL exception. msg = MILCompilerForANE error: failed to compile ANE model using ANEF. "
    "Error=_ANECompiler : ANECCompile() FAILED."
)


def sweep(folder: Path, answers: list[dict], *args: str) -> tuple[list[record.Record], str, int]:
    """Records, what was printed, exit code."""
    script = {"name": "theatre", "source": "constructed", "answers": answers,
              "host": {"chip": "Apple M4", "system": "Darwin", "machine": "arm64", "os_build": "24E248"}}  # fmt: skip
    (folder / "script.json").write_text(json.dumps(script))
    env = {**os.environ, VARIABLE: str(folder / "script.json")}
    command = [sys.executable, "-m", "ane_sweep", "-m", *QUICK, f"out={folder / 'out'}", *args]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=550, cwd=folder)
    runs = sorted((folder / "out" / "runs").iterdir())
    assert runs, done.stderr
    records = record.read_records(runs[-1])
    bundle.export(runs[-1], folder / "sweep.zip", folder / "out")
    assert len(bundle.read(folder / "sweep.zip").records) == len(records), "whatever a sweep leaves can be imported"
    return records, done.stdout, done.returncode


@pytest.fixture(scope="module")
def theatre(tmp_path_factory):
    return sweep(
        tmp_path_factory.mktemp("theatre"),
        [
            {"on": "predict", "units": "cpu_only", "ms": [30, 12], "native_ms": 11},
            {"on": "predict", "units": "cpu_and_gpu", "ms": [20, 4], "native_ms": 3.5},
            {"on": "plan", "units": "cpu_and_gpu", "hang": True},
            {"on": "load", "units": "cpu_and_ne", "stderr": COMPILE_FAILED, "source": ISSUE},
            {"on": "predict", "units": "cpu_and_ne", "ms": [40, 12.1], "native_ms": 11},
            {"on": "predict", "units": "all", "stage": "latency", "from_call": 2, "signal": "SIGKILL", "source": ISSUE},
        ],
        "compute_units=cpu_and_ne,cpu_and_gpu,all",
        "limits.place.timeout_s=60",  # time enough for the others on a busy machine
    )


@pytest.mark.slow
@pytest.mark.ci
def test_each_fate_is_one_true_record(theatre):
    records, said, code = theatre
    found = {cell.cell["compute_units"]: cell for cell in records}
    assert [cell.status.value for cell in records] == ["fallback", "timeout", "crashed"] and code == 1
    fell, hung, killed = found["cpu_and_ne"], found["cpu_and_gpu"], found["all"]

    assert "ANECCompile" in fell.reason and "the Neural Engine's compiler refused the program" in fell.reason
    assert fell.realised["observed"] == "cpu" and took(fell.value("latency_median_ms"), 12.1)

    assert hung.reason == (
        "place had not ended after 60 s and was killed: Core ML compiles for the Neural Engine meanwhile, which can take "
        "hours; more chunks, compute_units=cpu_and_gpu, or limits.place.timeout_s=SECONDS"
    )
    stages = {stage.stage: stage.status.value for stage in hung.stages}
    assert stages["place"] == "timeout" and stages["latency"] == "ok", "what could be measured was"
    assert took(hung.value("latency_median_ms"), 4)

    assert killed.reason.startswith("latency was killed by SIGKILL from outside: Core ML was seen to do that")
    assert killed.value("latency_median_ms") is None and killed.value("load_cold_ms") > 0
    for word in ("fallback", "timeout", "crashed", "stand-in, no Mac", "theatre (script.json"):
        assert word in said


@pytest.mark.slow
@pytest.mark.ci
def test_everything_that_comes_out_is_labelled(theatre):
    records, said, _ = theatre
    for cell in records:
        assert cell.host["stand_in"].startswith("theatre (script.json, ") and cell.realised["stand_in"]
        for entry in cell.metrics:
            asked_core_ml = entry.kind in ("planned",) or entry.source in ("coreml", "MLComputePlan", "coremltools")
            assert not asked_core_ml or str(entry.source).startswith("stand-in theatre"), entry
    assert "no Mac took part" in said


@pytest.mark.slow
def test_chains_pipelines_and_states_go_through_every_stage(tmp_path):
    answers = [{"on": "predict", "units": "cpu_and_ne", "ms": 2, "native_ms": 1.5}]
    args = ["compute_units=cpu_and_ne", "evidence=off"]
    chained, _, code = sweep(tmp_path, answers, *args, "chunks=2", "pipeline=manual,coreml")
    stateful, _, other = sweep(tmp_path, answers, *args, "cache=none,stateful")
    assert {code, other} <= {0, 1}
    for cell in [*chained, *stateful]:
        assert cell.status.value in ("ok", "degraded"), cell.reason  # a busy machine's timings scatter
        assert {stage.stage: stage.status.value for stage in cell.stages if stage.stage in ("compile", "load", "place")} == {
            "compile": cell_status(cell, "compile"), "load": "ok", "place": "ok",
        }  # fmt: skip
        assert cell.value("psnr_db") > 40
    by_pipeline = {cell.cell["pipeline"]: cell for cell in chained}
    assert by_pipeline["manual"].value("latency_native_median_ms") == 3, "two programs in a row"
    assert by_pipeline["coreml"].value("latency_native_median_ms") == 1.5, "one program"
    functions = {part.function for part in stateful[1].placement[-1].chunks}
    assert functions == {"prefill", "decode"}


@pytest.mark.slow
def test_load_hints_are_loaded_and_timed_apart(tmp_path):
    answers = [{"on": "predict", "units": "cpu_and_ne", "ms": 2, "native_ms": 1.5}]
    hint = "specialization=default,fast_prediction"
    (plain, hinted), _, code = sweep(tmp_path, answers, hint, "compute_units=cpu_and_ne", "evidence=off")
    assert code in (0, 1) and hinted.value("latency_native_median_ms") == 1.5
    assert "hints" not in plain.realised and hinted.realised["hints"] == {
        "reshape_frequency": "frequent", "specialization": "fast_prediction", "low_precision_accumulation": False,
    }  # fmt: skip
    run = next((tmp_path / "out" / "runs").iterdir())
    stages = Counter(path.name.rpartition("-")[0] for path in run.glob("tasks/*"))
    assert stages["load"] == stages["score"] == 2 and stages["convert"] == stages["compile"] == stages["place"] == 1


@pytest.mark.slow
def test_a_phone_goes_through_every_stage(tmp_path):
    answers = [phone(), {"on": "predict", "device": "usb", "ms": 4}, {"on": "load", "device": "usb", "ms": 800}]
    ((cell, other), _, _) = sweep(tmp_path, answers, "device=usb,local", "compute_units=cpu_and_ne", "evidence=off")
    assert {stage.stage: stage.status.value for stage in cell.stages if stage.stage != "reference"} == {
        "convert": "ok", "predict": "ok", "compile": "ok", "place": "ok", "load": "ok", "score": "ok", "latency": "ok",
    }  # fmt: skip
    assert cell.realised["device"] == "usb: iphone, 18.2 (22C152)" and other.realised["device"] == "local"
    assert cell.value("latency_median_ms") == pytest.approx(4) and cell.value("load_cold_ms") == pytest.approx(800)
    assert cell.value("psnr_db") == other.value("psnr_db")
    assert {entry.chip for entry in cell.placement if entry.kind == "planned"} == {"iphone17,3"}
    assert "Phone 0" not in json.dumps(cell.to_dict()), "nobody's device is named"


def cell_status(cell: record.Record, name: str) -> str:
    return next(stage.status.value for stage in cell.stages if stage.stage == name)

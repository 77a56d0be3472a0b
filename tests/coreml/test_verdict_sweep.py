"""A whole sweep on the stand-in: three cells, three verdicts, and an evidence pass that is killed. Scripted answers."""

import json
import shutil

import pytest
from tiny import ONCE

from ane_sweep.__main__ import main
from ane_sweep.bridge.record import read_records
from ane_sweep.machine import stand_in
from ane_sweep.report import screen
from ane_sweep.verbs.doctor import confirm

ISSUE = "coremltools#2758"  # what Core ML prints while a load goes on to succeed
LINE = "E5RT encountered an STL exception. msg = MILCompilerForANE error: Error=_ANECompiler : ANECCompile() FAILED."
FLOOD = json.dumps(
    {"eventMessage": "VM exhausted " + "x" * 300, "processID": 1, "processImagePath": "/usr/libexec/aned"}
)
ANSWERS = [
    {"on": "predict", "stage": "evidence", "units": "cpu_and_ne", "from_call": 3, "signal": "SIGKILL", "source": ISSUE},
    {"on": "predict", "units": "cpu_only", "ms": [9.0, 9.05, 9.1]},
    {"on": "predict", "units": "cpu_and_gpu", "ms": 4.0},
    {"on": "predict", "units": "cpu_and_ne", "ms": 2.0},
    {"on": "predict", "units": "all", "ms": 9.05},
    {"on": "load", "units": "all", "stderr": LINE, "source": ISSUE},
    {"on": "plan", "units": "cpu_and_gpu", "preferred": "gpu"},
    {"on": "plan", "units": "cpu_and_ne", "preferred": "ane"},
    {"on": "plan", "units": "all", "preferred": "ane"},
    {"on": "command", "argv": ["log", "stream"], "stdout": FLOOD + "\n", "repeat": 40000, "forever": True},
    {"on": "command", "argv": ["sudo", "-n", "powermetrics"], "stderr": "sudo: a password is required\n", "code": 1},
]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """(records by units, run folder) of one sweep."""
    folder = tmp_path_factory.mktemp("verdicts")
    held = {"name": "verdicts", "source": "constructed", "host": {"chip": "Apple M4"}, "answers": ANSWERS}
    (folder / "script.json").write_text(json.dumps(held))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(stand_in.VARIABLE, str(folder / "script.json"))
        code = main([
            "-m", "model=tiny-gpt2", "weights=random", "seq_len=16", "runtime=coreml", "gate.wait_s=0",
            "compute_units=cpu_and_gpu,cpu_and_ne,all", "latency.samples=10", "latency.idle_s=0", ONCE,
            "tracking.enabled=false", f"out={folder}",
        ])  # fmt: skip
    assert code == 1, "a fallback is not ok"
    (run,) = (folder / "runs").iterdir()
    yield {record.cell["compute_units"]: record for record in read_records(run)}, run
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_three_cells_three_verdicts(sweep):
    records, _ = sweep
    told = {u: (r.status, r.realised["verdict"], r.realised["observed"]) for u, r in records.items()}
    assert told == {
        "cpu_and_gpu": ("ok", "agrees", "gpu"),
        "cpu_and_ne": ("degraded", "agrees", "ane"),
        "all": ("fallback", "disagrees", "cpu"),
    }
    assert records["all"].reason.startswith(
        "Core ML planned mainly for the Neural Engine, but it ran on the CPU; Core ML said: "
    )
    assert "the evidence pass ended as crashed: evidence was killed by SIGKILL" in records["cpu_and_ne"].reason
    text = screen.as_text(list(records.values()), width=200)
    assert "disagrees (cpu)" in text and "fallback" in text and "stand-in" in text


@pytest.mark.slow
def test_the_flood_is_bounded_and_the_missing_sudo_is_said(sweep):
    told = sweep[0]["cpu_and_gpu"].realised["evidence"]
    assert told["log"] == "measured" and told["log_note"] == "the log flooded: of 8 MiB on it was not read"
    (finding,) = told["findings"]
    assert finding["process"] == "aned" and not finding["ours"] and finding["count"] > 1000
    assert "sudo visudo" in told["power"]


@pytest.mark.slow
def test_cells_share_their_comparison_timings(sweep):
    records, run = sweep
    timed = [json.loads(path.read_text())["params"]["compute_units"] for path in run.glob("tasks/latency-*/task.json")]
    assert sorted(timed) == ["all", "cpu_and_gpu", "cpu_and_ne", "cpu_only"]
    assert all(len([s for s in record.stages if s.stage == "latency"]) == 1 for record in records.values())


@pytest.mark.slow
def test_a_stand_ins_records_confirm_nothing(sweep, capsys):
    assert confirm.confirm(read_records(sweep[1])) in (0, 1)
    text = capsys.readouterr().out
    assert "a stand-in answered for the Mac" in text and "confirmed  " not in text

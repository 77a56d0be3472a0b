"""The first run on a Mac: what its records confirm, and that the page's and the workflow's commands are ones we have."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from constructed import placement

from ane_sweep import verbs
from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.record import Record, StageOutcome, StageStatus, Status, read_records, write_records
from ane_sweep.errors import RunNotFound
from ane_sweep.placement.types import Ops
from ane_sweep.planner import config
from ane_sweep.verbs.doctor import confirm, doctor

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "ane_sweep" / "docs" / "mac.md"
WORKFLOW = ROOT / ".github" / "workflows" / "macos.yml"
GOOD = {
    "load_cold_ms": 900, "load_cached_ms": 90, "latency_median_ms": 2.0, "latency_native_median_ms": 1.9, "psnr_db": 71.0,
    "energy_cpu_mj": 3.0, "footprint_peak_bytes": 4e8, "die_celsius": 48.0,
}  # fmt: skip
SOURCES = {"log": "measured", "power": "measured", "footprint": "measured", "thermal_pressure": "nominal"}
STAGES = ("compile", "place", "load", "latency", "evidence")


def record(
    units="cpu_and_ne", observed="ane", *, runtime="coreml", metrics=None, sources=None, stages=None, **more
) -> Record:
    """Constructed: what a Mac's record would hold."""
    figures = {**GOOD, **(metrics or {})}
    plan = placement("planned", "m4", Ops(cpu=3, gpu=0, ane=40, total=43), compute_units=units)
    return Record(
        sweep="s", cell_key=units + runtime, cell={"model": "minilm", "compute_units": units, "runtime": runtime}, status=Status.OK,
        stages=[StageOutcome(name, StageStatus((stages or {}).get(name, "ok")), "boom") for name in STAGES],
        realised={"runtime": runtime, "verdict": "agrees", "observed": observed, "verdict_reasons": ["because"],
                  "evidence": {**SOURCES, **(sources or {})}},
        metrics=[Metric(name, value, "x") for name, value in figures.items() if value is not None],
        placement=[plan], **more,
    )  # fmt: skip


def states(*records: Record) -> dict[str, str]:
    return {what: state for what, state, _ in confirm.check(records)}


def test_a_good_run_confirms_all():
    cells = [record("cpu_only", "cpu"), record("cpu_and_gpu", "gpu"), record(), record(runtime="torch_mps")]
    assert set(states(*cells).values()) == {"confirmed"} and len(states(*cells)) == 20


def test_nothing_recorded_is_nothing_seen():
    assert set(states().values()) == {"not seen"}


@pytest.mark.parametrize(
    ("what", "how", "state"),
    [
        ("Core ML compiles our programs", {"stages": {"compile": "failed"}}, "contradicted"),
        ("they load, cold and cached", {"stages": {"load": "timeout"}}, "contradicted"),
        ("they predict", {"stages": {"latency": "blocked"}}, "not seen"),
        ("a cached load is the faster one", {"metrics": {"load_cached_ms": 950}}, "contradicted"),
        ("Core ML's own duration is within ours", {"metrics": {"latency_native_median_ms": 2.5}}, "contradicted"),
        ("Core ML's own duration is within ours", {"metrics": {"latency_native_median_ms": None}}, "not seen"),
        ("their numbers are right", {"metrics": {"psnr_db": 12.0}}, "contradicted"),
        ("powermetrics can be read", {"sources": {"power": "powermetrics needs root"}}, "not seen"),
        ("energy of a prediction is believable", {"metrics": {"energy_cpu_mj": -1.0}}, "contradicted"),
        ("footprint is believable", {"metrics": {"footprint_peak_bytes": 12.0}}, "contradicted"),
        ("die temperature is believable", {"metrics": {"die_celsius": 900.0}}, "contradicted"),
        ("the Neural Engine is recognised", {"observed": "cpu"}, "not seen"),
        ("the GPU is recognised", {}, "not seen"),
    ],
)
def test_what_went_otherwise_is_told(what, how, state):
    assert states(record(**how))[what] == state


def test_the_command_prints_and_exits(tmp_path, capsys):
    write_records(tmp_path, [record()])
    assert confirm.confirm(read_records(tmp_path)) == 0
    assert "confirmed  they predict: 1 ended well" in capsys.readouterr().out
    write_records(tmp_path, [record(metrics={"psnr_db": 3.0}, host={"stand_in": "mac"})])
    assert confirm.confirm(read_records(tmp_path)) == 1
    text = capsys.readouterr().out
    assert text.startswith("a stand-in answered for the Mac") and "confirmed  " not in text and "scripted" in text


def test_doctor_takes_the_run_by_name(tmp_path, capsys):
    with pytest.raises(RunNotFound, match="no sweep nosuch with records"):
        doctor(["--confirm", "nosuch", f"out={tmp_path}"])


def steps() -> list[dict]:
    (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    assert job["defaults"]["run"]["shell"] == "bash" and job["runs-on"].startswith("macos-")
    return job["steps"]


def scripts() -> list[str]:
    return [step["run"] for step in steps() if "run" in step]


def commands() -> list[list[str]]:
    """Every `ane-sweep ...` of the workflow and of the page."""
    page = "\n".join(re.findall(r"^    (ane-sweep .*)$", PAGE.read_text(), re.MULTILINE))
    found = re.findall(r"^(?:\s*)(ane-sweep .*?)(?: \|\| .*| >>? .*)?$", "\n".join([*scripts(), page]), re.MULTILINE)
    return [shlex.split(line)[1:] for line in found]


def test_the_workflows_scripts_are_bash():
    assert len(scripts()) == 7
    for script in scripts():
        done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


def test_the_workflow_uploads_what_its_steps_write():
    uploaded = steps()[-1]["with"]["path"].split()
    assert (
        uploaded == ["outputs/doctor.json", "outputs/first_run.txt", "outputs/runs"] and steps()[-1]["if"] == "always()"
    )
    text = "\n".join(scripts())
    assert all(path in text for path in uploaded)
    for path in re.findall(r"pytest (\S+)", text):
        assert (ROOT / path).exists(), path


def test_every_command_is_one_that_we_have():
    assert len(commands()) >= 8
    for args in commands():
        if args[0] in verbs.names():
            assert args[:2] == ["doctor", "--confirm"] or args in (
                ["doctor"],
                ["doctor", "--json"],
                ["report", "--markdown"],
            ), args
        else:
            assert config.load(args).cells, args


def test_the_page_and_the_workflow_claim_no_run():
    assert "has not been run yet" in PAGE.read_text() and WORKFLOW.read_text().startswith("# NOT YET RUN")
    for name in re.findall(r"\[?`([\w/.]+\.(?:md|csv|yml|py))`", PAGE.read_text()):
        assert any((base / name).exists() for base in (ROOT, PAGE.parent)), name

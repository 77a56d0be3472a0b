"""Timing off a Mac is a check: a few calls in one process, no quiet machine, never a doubt; real sweeps of a tiny model."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import ane_sweep
from ane_sweep.__main__ import main
from ane_sweep.bridge.record import Record, Status, read_records
from ane_sweep.errors import ConfigError
from ane_sweep.planner import config, timing
from ane_sweep.planner.paths import conf_dir
from ane_sweep.results import headline
from ane_sweep.runner import gate
from ane_sweep.tracking import describe

BUSY = "other programs were using the processor"
TINY = ["model=tiny-gpt2", "weights=random", "seq_len=16", "tracking.enabled=false", "gate.wait_s=0"]


def run(out: Path, *args: str) -> tuple[int, list[Record]]:
    code = main(["-m", *TINY, *args, f"out={out}"])
    return code, read_records(max((out / "runs").iterdir()))


def stages(record: Record) -> list[str]:
    return [stage.stage for stage in record.stages]


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """One outputs folder for all sweeps of this file, which share their preparation."""
    return tmp_path_factory.mktemp("out")


@pytest.fixture
def busy_gate(monkeypatch) -> list[float]:
    """A machine that never becomes quiet: the idle share that each look at it found."""
    looks: list[float] = []

    def see_no_idle_share() -> float:
        looks.append(0.0)
        return 0.0

    monkeypatch.setattr(gate, "_idle_share", see_no_idle_share)
    return looks


@pytest.mark.slow
def test_beside_a_busy_loop_every_cell_is_ok_and_nothing_waits(out, busy_gate, capsys):
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        code, records = run(out, "chunks=1,2", "compute_units=all,cpu_only")
    finally:
        loop.kill()
        loop.wait()
    assert code == 0 and [record.status for record in records] == [Status.OK] * 4
    assert not busy_gate, "nobody looks whether the machine is quiet"
    for record in records:
        assert headline.is_check(record) and stages(record).count("latency") == 1
        (taken,) = record.timings
        assert (taken.gate, taken.notes, len(taken.samples_ms), len(taken.warmup_ms)) == (None, [], 3, 1)
        assert not record.realised.keys() & {"unstable", "cut_short", "costs"} and taken.after_idle_ms is None
    assert len({record.realised["latency_task"] for record in records}) == 2, "cells of one program share their check"
    said = capsys.readouterr()
    assert "timing up to" not in said.err and "needs macOS" not in said.err
    assert "2 timings          for 4 cells; each is a few calls, to check that it runs here" in said.err


@pytest.mark.slow
def test_options_of_a_check_that_are_given_are_kept(out):
    _, (record,) = run(out, "latency.samples=7", "latency.warmup=2")
    assert (len(record.timings[0].samples_ms), len(record.timings[0].warmup_ms)) == (7, 2)
    shipped = yaml.safe_load((conf_dir() / "config.yaml").read_text())["latency"]
    assert {name: default for name, (default, _) in timing._OF_A_CHECK.items()}.items() <= shipped.items()


@pytest.mark.slow
def test_repeats_bring_the_gate_back_and_a_time_that_answers_nothing_is_no_doubt(out, busy_gate):
    code, (record,) = run(out, "latency.repeats=2", "latency.samples=5")
    assert len(busy_gate) == 2 and [one.gate.in_vain for one in record.timings] == [[BUSY]] * 2
    assert not headline.is_check(record) and not headline.answers_by_timing(record)
    assert (code, record.status) == (0, Status.OK)


@pytest.mark.slow
def test_a_runtime_by_name_is_measured_and_may_be_in_doubt(out, busy_gate):
    code, (record,) = run(out, "runtime=reference", "latency.repeats=1", "latency.samples=5")
    assert busy_gate and (code, record.status) == (3, Status.DEGRADED) and BUSY in record.reason
    text = describe.describe_cell(record, [], out)
    assert (text.status, text.metrics[0][0]) == ("FINISHED", "measured.latency_median_ms")
    assert BUSY in text.tags["ane_sweep.doubt"] and BUSY in text.tags["mlflow.note.content"]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("word", ["latency=off", "latency.repeats=0"])
def test_nothing_is_timed_if_timing_is_off(out, word):
    code, (record,) = run(out, word)
    assert (code, record.status) == (0, Status.OK) and record.cell["latency"]["repeats"] == 0
    assert "latency" not in stages(record) and record.timings == [] and "latency_task" not in record.realised
    assert record.value("psnr_db") > 40 and record.realised["runtime"] == "reference"
    assert headline.headline(record).chip == "m4"
    assert (max((out / "runs").iterdir()) / "report.html").exists()


@pytest.mark.slow
@pytest.mark.ci
def test_mlflow_opens_on_the_estimate_and_a_check_stays_in_the_rest(out):
    _, (record,) = run(out)
    names = [name for name, *_ in describe.describe_cell(record, [], out).metrics]
    assert names[0] == "estimated.m4.latency_ms" and "rest.measured.latency_median_ms" in names
    assert not [name for name in names if name.startswith("measured.latency_")]


@pytest.mark.slow
@pytest.mark.ci
def test_python_and_kept_matrices_turn_timing_off_too(out, tmp_path):
    words = " ".join([*TINY, f"out={out}"])
    found = ane_sweep.sweep(words, latency="off")
    assert found.ok and [stages(record).count("latency") for record in found.records] == [0]
    both = ane_sweep.plan(words, latency=["off", "auto"])
    assert [task.stage for task in both.plan.tasks.values()].count("latency") == 1
    kept = tmp_path / "sweep"
    kept.mkdir()
    axes = "axes: {model: [tiny-gpt2], weights: [random], latency: [auto, off]}\n"
    (kept / "listed.yaml").write_text(f"name: listed\ndescription: both\n{axes}")
    axes = "sweep:\n  name: set\n  axes: {model: [tiny-gpt2], weights: [random]}\n"
    (kept / "set.yaml").write_text(f"# @package _global_\n{axes}latency: off\n")
    (kept / "inner.yaml").write_text(f"# @package _global_\n{axes}latency:\n  repeats: off\n")
    for name, expected in (("listed", ["auto", 0]), ("set", [0]), ("inner", [0])):
        cells = config.load(["-m", "--config-dir", str(tmp_path), f"+sweep={name}"]).cells
        assert [cell.latency["repeats"] for cell in cells] == expected
        assert all(cell.latency["samples"] == 20 for cell in cells)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["latency.samples=0"], "latency.samples=0: must be 1 or more; latency=off times nothing"),
        (["latency=of"], "latency=of: unknown (did you mean 'off'?); choices: a number, auto, off"),
        (["latency.repeats=-1"], "latency.repeats=-1: must be 0 or more"),
    ],
)
def test_wrong_words_about_timing_name_the_way_to_turn_it_off(words, said):
    with pytest.raises(ConfigError) as error:
        config.load([*TINY, *words])
    assert error.value.problems == [said]


@pytest.mark.parametrize("word", ["throughput=10", "copies=2"])
def test_what_only_a_timing_shows_is_refused_without_one(out, word, capsys):
    assert main(["-m", *TINY, "latency=off", word, f"out={out}"]) == 2
    assert f"{word} is a timing, and latency=off times nothing: leave one of them out" in capsys.readouterr().err

"""From the plan's shared comparison timings to a record's verdict and status: a real plan, scripted outcomes (constructed)."""

import json
from types import SimpleNamespace

import pytest
from tiny import ONCE

from ane_sweep.bridge.figures import Timing
from ane_sweep.bridge.plan import Outcome
from ane_sweep.bridge.record import StageStatus, Status
from ane_sweep.bridge.task import TaskResult
from ane_sweep.machine import stand_in
from ane_sweep.placement.types import Ops, Placement, Shares
from ane_sweep.planner import checkpoints, config, overview, plan
from ane_sweep.report import screen
from ane_sweep.results import assemble, gather
from ane_sweep.runner.slots import order_in_rounds
from ane_sweep.runner.task_runner import TaskRunner
from ane_sweep.tracking.describe import describe_cell

MS = {"cpu_only": 9.0, "cpu_and_gpu": 4.0, "cpu_and_ne": 2.0, "all": 2.0}


@pytest.fixture
def planned(tmp_path, monkeypatch):
    (tmp_path / "script.json").write_text(json.dumps({"name": "mac", "source": "constructed"}))
    monkeypatch.setenv(stand_in.VARIABLE, str(tmp_path / "script.json"))

    def make(*args):
        request = config.load(["-m", "model=tiny-gpt2", "weights=random", "runtime=coreml", ONCE, *args])
        sources = {
            cell.key: checkpoints.resolve(cell.model_options, "random", seed=0, allow_pickle=False, digests=None)
            for cell in request.cells
        }
        tools = {"torch": "1", "coremltools": "2", "transformers": "3", "numpy": "4"}
        return plan.make_plan(request.cells, request.axes, sources, host="h", toolchain=tools)

    return make


def outcomes(made, folder, *, ms=None, planned_ane=0.9, ended=None, evidence=None, stderr=None):
    """How every task might have ended. ms: units -> milliseconds; ended: stage -> Outcome; stderr: stage -> text."""
    found = {}
    for key, task in made.tasks.items():
        result, units = TaskResult(task.stage, key, "ok"), task.params.get("compute_units")
        if task.stage == "place":
            shares, ops = Shares(cpu=1 - planned_ane, gpu=0.0, ane=planned_ane), Ops(cpu=1, gpu=0, ane=9, total=10)
            result.placement = [Placement("planned", "m4", units, ops, shares, segments=1, transitions=0)]
        if task.stage == "latency":
            result.timing = Timing(1, 1.0, samples_ms=[{**MS, **(ms or {})}[units]] * 20)
        if task.stage == "score":
            result.realised = {"runtime": "coreml", "compute_units": units, "chunks": 1}
        if task.stage == "evidence":
            result.facts["evidence"] = evidence or {"power": {}, "findings": [], "missing": ["power: no sudo"]}
        out = folder / f"{task.stage}-{key[:6]}" / "out"
        out.mkdir(parents=True, exist_ok=True)
        (out.parent / "stderr.txt").write_text((stderr or {}).get(task.stage, ""))
        well = Outcome(StageStatus.OK, None, result, out, out.parent / "stderr.txt")
        found[key] = (ended or {}).get(task.stage) or well
    return found


def records(made, folder, **how):
    results = outcomes(made, folder, **how)
    return assemble.make_records(made, results, sweep="s", host={}, toolchain={}, files=lambda folder: [])


def bad(status: str, reason: str) -> Outcome:
    return Outcome(StageStatus(status), reason)


def stages(made, name):
    return [task for task in made.tasks.values() if task.stage == name]


def test_the_comparison_timings_are_the_tasks_of_the_cells_that_ask_for_those_units(planned):
    four = planned("compute_units=all,cpu_only,cpu_and_gpu,cpu_and_ne")
    assert (len(stages(four, "latency")), len(stages(four, "evidence"))) == (4, 4), "nothing is timed twice"
    alone = planned("compute_units=cpu_and_ne,all")
    assert len(stages(alone, "latency")) == 4
    assert all(len([k for k in chain if alone.tasks[k].stage == "latency"]) == 1 for chain in alone.chains.values())
    text = overview.describe(alone, lambda task: False)
    assert "4 timings          for 2 cells; 2 of them for evidence=auto to compare with" in text
    labels = [task.label for task in stages(planned("compute_units=cpu_and_ne"), "latency")]
    assert [label.partition("compute_units=")[2] for label in labels] == ["", "cpu_only", "cpu_and_gpu"]


def test_evidence_off_and_other_runtimes_time_nothing_more(planned):
    off = planned("compute_units=cpu_and_ne", "evidence=off")
    assert (len(stages(off, "latency")), stages(off, "evidence")) == (1, [])
    eager = planned("runtime=reference")
    assert (len(stages(eager, "latency")), stages(eager, "evidence")) == (1, [])
    assert len(stages(planned("compute_units=cpu_only"), "latency")) == 1, (
        "with the CPU alone there is nothing to compare"
    )


def test_with_timing_off_core_ml_times_nothing_and_still_watches_power_and_log(planned, tmp_path):
    made = planned("compute_units=cpu_and_ne", "latency=off")
    assert (len(stages(made, "latency")), len(stages(made, "evidence"))) == (0, 1) and not any(made.beside.values())
    drew = {"power": {"ane": {"milliwatts": 900.0, "median": 900.0, "idle_max": 0.0}}, "findings": [], "missing": []}
    (seen,) = records(made, tmp_path, evidence=drew)
    assert (seen.status, seen.realised["verdict"], seen.realised["observed"]) == (Status.OK, "agrees", "ane")
    (unseen,) = records(made, tmp_path / "other")
    assert (unseen.status, unseen.realised["verdict"], unseen.timings) == (Status.OK, "unavailable", [])
    assert "latency=off: no latency was compared" in unseen.realised["verdict_reasons"]


def test_core_ml_keeps_the_whole_discipline(planned):
    made = planned("compute_units=cpu_only", "runtime=auto", "latency.repeats=auto")
    assert [(task.round, task.alone) for task in stages(made, "latency")] == [(n, True) for n in (1, 2, 3, 4)]


def test_evidence_and_throughput_come_after_every_timing(planned):
    made = planned("compute_units=cpu_and_ne", "throughput=5", "latency.repeats=2")
    order = [task.stage for task in order_in_rounds([task for task in made.tasks.values() if task.alone])]
    assert order[-2:] == ["throughput", "evidence"] and order[-3] == "latency"


def test_a_cell_on_the_neural_engine_is_ok(planned, tmp_path):
    (record,) = records(planned("compute_units=cpu_and_ne"), tmp_path)
    assert (record.status, record.realised["verdict"], record.realised["observed"]) == ("ok", "agrees", "ane")
    assert "ran where asked" in screen.as_markdown([record]) and "agrees (ane)" in screen.as_markdown([record])
    tags = describe_cell(record, [], tmp_path).tags
    assert tags["realised.verdict"] == "agrees" and "times that of cpu_only" in tags["realised.verdict_reasons"]


def test_a_silent_fall_to_the_cpu_is_a_fallback(planned, tmp_path):
    (record,) = records(planned("compute_units=cpu_and_ne"), tmp_path, ms={"cpu_and_ne": 9.0})
    assert record.status == "fallback"
    assert record.reason.startswith(
        "compute_units=cpu_and_ne asks for the Neural Engine, but it ran on the CPU; latency is"
    )
    assert "disagrees (cpu)" in screen.as_text([record], width=160)


def test_what_the_timed_process_printed_counts(planned, tmp_path):
    """The line of coremltools#2758: printed while loading, which succeeds all the same."""
    line = (
        "E5RT encountered an STL exception. msg = MILCompilerForANE error: Error=_ANECompiler : ANECCompile() FAILED."
    )
    (record,) = records(planned("compute_units=cpu_and_ne"), tmp_path, stderr={"latency": line})
    assert record.status == "fallback" and "Core ML said: the Neural Engine's compiler refused" in record.reason


def test_a_timing_that_dies_says_what_was_printed_before(planned, tmp_path):
    """coremltools#2758: the first prediction is killed after a compilation that failed."""
    made = planned("compute_units=cpu_and_ne")
    how = outcomes(made, tmp_path, stderr={"latency": "ANECCompile() FAILED"})
    own = next(key for key in made.chains[made.cells[0].key] if made.tasks[key].stage == "latency")
    how[own].status, how[own].reason = StageStatus.CRASHED, "latency was killed by SIGKILL"
    (record,) = assemble.make_records(made, how, sweep="s", host={}, toolchain={}, files=lambda folder: [])
    assert record.status == "crashed"
    assert record.reason.startswith("latency was killed by SIGKILL. Core ML said: the Neural Engine's compiler refused")


def test_a_killed_evidence_pass_is_a_doubt_not_a_crash(planned, tmp_path):
    ended = {"evidence": bad("crashed", "evidence was killed by SIGKILL")}
    (record,) = records(planned("compute_units=cpu_and_ne"), tmp_path, ended=ended)
    assert record.status == "degraded"
    assert (
        record.reason
        == "the evidence pass ended as crashed: evidence was killed by SIGKILL; the timings were taken before it"
    )
    assert record.realised["verdict"] == "agrees", "latency still tells"


def test_comparison_timings_that_fail_cost_the_cell_nothing_but_the_verdict(planned, tmp_path):
    made = planned("compute_units=cpu_and_ne")
    how = outcomes(made, tmp_path)
    for units, key in made.beside[made.cells[0].key].items():
        how[key] = bad("timeout", f"{units} took too long")
    (record,) = assemble.make_records(made, how, sweep="s", host={}, toolchain={}, files=lambda folder: [])
    assert (record.status, record.realised["verdict"]) == ("ok", "unavailable")
    assert "cpu_only was not timed (timeout)" in record.realised["verdict_reasons"]
    assert "power: no sudo" in record.realised["verdict_reasons"]


def test_latency_and_plan_that_contradict_each_other_are_a_doubt(planned, tmp_path):
    (record,) = records(planned("compute_units=cpu_and_ne"), tmp_path, planned_ane=0.0)
    assert record.status == "degraded" and "the plan does not tell what happened" in record.reason


def test_a_verdict_looks_at_one_process_a_side(planned, tmp_path):
    """What is compared with was timed once, in the first round: further processes of the cell's own are no evidence."""
    made = planned("compute_units=cpu_and_ne", "latency.repeats=3")
    ended = outcomes(made, tmp_path)
    chain = [(made.tasks[key], ended[key]) for key in made.chains[made.cells[0].key]]
    beside = {units: ended[key] for units, key in made.beside[made.cells[0].key].items()}
    assert {name: len(samples) for name, samples in gather._samples(chain, beside).items()} == {
        "own": 20, "cpu_only": 20, "cpu_and_gpu": 20,
    }  # fmt: skip


def test_evidence_off_gives_unavailable(planned, tmp_path):
    (record,) = records(planned("compute_units=cpu_and_ne", "evidence=off"), tmp_path)
    assert (record.status, record.realised["verdict"]) == ("ok", "unavailable")
    assert record.realised["verdict_reasons"] == ["evidence=off"]


def test_what_dies_while_timed_is_not_run_again_for_evidence(planned, tmp_path):
    made = planned("compute_units=cpu_and_ne", "throughput=5")
    (chain,) = made.chains.values()
    own = next(key for key in chain if made.tasks[key].stage == "latency")
    assert all(made.tasks[key].after == (own,) for key in chain if made.tasks[key].stage in ("evidence", "throughput"))
    worker = TaskRunner(made, SimpleNamespace(earlier_result=lambda task: None), None, None, 0, 1, None)
    worker.outcomes = outcomes(made, tmp_path)
    (task,) = stages(made, "evidence")
    assert worker.resolve_without_running(task) is None
    worker.outcomes[own] = bad("timeout", "latency took too long")
    assert worker.resolve_without_running(task).reason == "needs latency, which ended as timeout"
    (record,) = assemble.make_records(
        made,
        {**worker.outcomes, task.key: worker.resolve_without_running(task)},
        sweep="s",
        host={},
        toolchain={},
        files=lambda f: [],
    )
    assert (record.status, record.reason) == ("timeout", "latency took too long")

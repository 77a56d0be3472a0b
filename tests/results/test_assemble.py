"""From outcomes to a record's status and figures."""

import json
from dataclasses import replace

from ane_sweep.bridge.figures import Artifact, Look, Metric, Timing
from ane_sweep.bridge.plan import Outcome
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.task import Task, TaskResult
from ane_sweep.results import assemble


def ended(stage, folder):
    task = Task(
        stage=stage, key=stage, params={}, inputs={}, folders={}, limits={}, label=stage, work=1,
        memory_bytes=1, disk_bytes=0, seconds=None,
    )  # fmt: skip
    return task, Outcome(StageStatus.OK, folder=folder)


def test_prediction_and_plan_of_one_chip_agree_as_a_metric(tmp_path):
    """Constructed rows: what place would leave on an M4, beside what predict leaves anywhere."""
    rows = [{"op_type": "gather", "preferred": "cpu"}, {"op_type": "conv", "preferred": "ane"}]
    (tmp_path / "placement.planned.m4.json").write_text(json.dumps({"chip": "m4", "table": rows}))
    predicted = [rows[0], {"op_type": "conv", "preferred": "cpu"}]
    (tmp_path / "placement.predicted.m4.json").write_text(json.dumps({"table": predicted}))
    (found,) = assemble._agreement([ended("predict", tmp_path), ended("place", tmp_path)], {})
    assert (found.name, found.value, found.chip) == ("plan_agreement", 0.5, "m4")
    (tmp_path / "placement.predicted.m4.json").rename(tmp_path / "placement.predicted.m1.json")
    assert assemble._agreement([ended("predict", tmp_path), ended("place", tmp_path)], {}) == []


def test_the_tracker_gets_the_per_op_tables(tmp_path):
    from ane_sweep.bridge.record import Record, Status
    from ane_sweep.tracking.describe import cell_artifacts

    (tmp_path / "placement.predicted.m4.json").write_text('{"table": []}')
    path = str(tmp_path / "placement.predicted.m4.json")
    artifacts = [Artifact("placement.predicted.m4.json", path), Artifact("weight.bin", path)]
    record = Record(sweep="s", cell_key="k", cell={"model": "gpt2"}, status=Status.OK, artifacts=artifacts)
    texts = cell_artifacts(record, tmp_path, record.artifacts)
    assert texts["placement.predicted.m4.json"] == '{"table": []}' and "weight.bin" not in texts


def test_a_timing_of_a_busy_machine_is_degraded_however_stable():
    from types import SimpleNamespace

    from ane_sweep.bridge.record import Record, Status

    cell = SimpleNamespace(precision_settings=SimpleNamespace(min_psnr_db=None), precision="fp16")
    busy = "other programs were using the processor"
    timing = Timing(1, 672.0, gate=Look(False, 30.0, [busy], [busy]))
    figures = [Metric("latency_median_ms", 672.0, "ms")]
    named = {"sweep": "s", "cell_key": "k", "status": Status.OK, "metrics": figures}
    record = Record(**named, cell={"runtime": "reference"}, timings=[timing])
    assert assemble._verdict(cell, record, [ended("latency", None)], None) == (Status.DEGRADED, f"timed while {busy}")
    record.cell = {"runtime": "auto", "latency": {"repeats": 4}}
    record.realised |= {"runtime": "reference", "unstable": "timing is unstable"}
    assert assemble._verdict(cell, record, [ended("latency", None)], None) == (Status.OK, None), "it answers nothing"
    record.realised |= {"runtime": "coreml"}
    status, reason = assemble._verdict(cell, record, [ended("latency", None)], None)
    assert (status, reason) == (Status.DEGRADED, f"timing is unstable; timed while {busy}")
    on_battery = Look(False, doubts=["the machine ran on battery"])
    record = Record(**named, cell={"runtime": "reference"}, timings=[replace(timing, gate=on_battery)])
    assert assemble._verdict(cell, record, [ended("latency", None)], None) == (Status.OK, None)


def test_a_cell_is_skipped_only_if_none_of_its_timings_was_taken():
    from types import SimpleNamespace

    from ane_sweep.bridge.record import Record, Status

    cell = SimpleNamespace(precision_settings=SimpleNamespace(min_psnr_db=None), precision="fp16")
    record = Record(sweep="s", cell_key="k", cell={}, status=Status.OK)
    skipped = Outcome(StageStatus.SKIPPED, "budget_minutes was spent before its turn")
    timed, late = (ended("latency", None)[0], Outcome(StageStatus.OK)), (ended("latency", None)[0], skipped)
    assert assemble._verdict(cell, record, [timed, late], None) == (Status.OK, None)
    assert assemble._verdict(cell, record, [late, late], None)[0] is Status.SKIPPED
    check = replace(late[0], params={"check": True}), skipped
    assert assemble._verdict(cell, record, [check], None) == (Status.OK, None), "its time answers nothing"


def test_low_psnr_of_a_precision_without_a_gate_is_a_warning_and_no_status():
    from types import SimpleNamespace

    from ane_sweep.bridge.figures import Metric
    from ane_sweep.bridge.record import Record, Status
    from ane_sweep.report.doubts import with_cells

    def warned(psnr, gate, worst=None):
        cell = SimpleNamespace(precision_settings=SimpleNamespace(min_psnr_db=gate), precision="p1")
        metrics = [] if psnr is None else [Metric("psnr_db", psnr, "dB")]
        metrics += [] if worst is None else [Metric("psnr_worst_db", worst, "dB")]
        record = Record(sweep="s", cell_key="k", cell={"model": "gpt2"}, status=Status.OK, metrics=metrics)
        record.realised |= assemble._psnr_warning(cell, record)
        record.status, record.reason = assemble._verdict(cell, record, [], None)
        return record

    low, high, own, unknown = warned(14.9, None), warned(30.0, None), warned(14.9, 20), warned(None, None)
    assert low.status == Status.OK and low.realised["psnr_warning"].startswith("PSNR is under 30 dB")
    assert own.status == Status.DEGRADED and not any("psnr_warning" in one.realised for one in (high, own, unknown))
    ungated, gated = warned(50, None, 12), warned(50, 40, 12)
    assert ungated.realised["psnr_warning"].startswith("PSNR of the worst output is under 30 dB")
    assert (gated.status, gated.reason) == (
        Status.DEGRADED, "PSNR of the worst output 12.0 dB is under the 40 dB that p1 should reach"
    )  # fmt: skip
    said = [doubt for doubt in with_cells([high, low]) if "under 30 dB" in doubt.text]
    assert [(doubt.cells, doubt.doubts_figures) for doubt in said] == [((1,), True)]


def test_a_cell_whose_compression_failed_has_no_size():
    """The size would be that of the program before its compression."""
    from types import SimpleNamespace

    from ane_sweep.bridge.figures import Metric
    from ane_sweep.bridge.record import Record, Status

    def sizes(*outcomes):
        chain = [(task, outcome) for task, outcome in outcomes]
        plan = SimpleNamespace(
            tasks={task.key: task for task, _ in chain}, chains={"k": [task.key for task, _ in chain]}, places={}
        )
        cell = SimpleNamespace(key="k", precision_settings=SimpleNamespace(min_psnr_db=None), precision="p6")
        record = Record(sweep="s", cell_key="k", cell={}, status=Status.OK)
        record.realised |= {"runtime": "reference"}
        assemble._fill(record, plan, cell, {task.key: outcome for task, outcome in chain}, {}, lambda folder: [])
        return record.value("package_bytes"), record.value("convert_s")

    result = TaskResult(
        "convert", "", "ok", metrics=[Metric("package_bytes", 9.0, "bytes"), Metric("convert_s", 1.0, "s")]
    )
    converted = ended("convert", None)[0], Outcome(StageStatus.OK, result=result)
    failed = replace(ended("compress", None)[0], key="c"), Outcome(StageStatus.FAILED, "KeyError")
    assert sizes(converted) == (9.0, 1.0) and sizes(converted, failed) == (None, 1.0)

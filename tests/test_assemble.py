"""From outcomes to a record's status and figures."""

import json

from ane_sweep import assemble
from ane_sweep.plan import Task
from ane_sweep.record import StageStatus
from ane_sweep.runner import Outcome


def ended(stage, folder):
    task = Task(
        stage=stage, key=stage, params={}, inputs={}, folders={}, limits={}, fault=None, label=stage, work=1,
        memory_bytes=1, disk_bytes=0, seconds=None,
    )  # fmt: skip
    return task, Outcome(StageStatus.OK, folder=folder)


def test_prediction_and_plan_of_one_chip_agree_as_a_metric(tmp_path):
    """Constructed rows: what place would leave on an M4, beside what predict leaves anywhere."""
    rows = [{"op_type": "gather", "preferred": "cpu"}, {"op_type": "conv", "preferred": "ane"}]
    (tmp_path / "placement.planned.json").write_text(json.dumps({"chip": "m4", "table": rows}))
    predicted = [rows[0], {"op_type": "conv", "preferred": "cpu"}]
    (tmp_path / "placement.predicted.m4.json").write_text(json.dumps({"table": predicted}))
    (found,) = assemble._agreement([ended("predict", tmp_path), ended("place", tmp_path)])
    assert (found["name"], found["value"], found["chip"]) == ("plan_agreement", 0.5, "m4")
    (tmp_path / "placement.predicted.m4.json").rename(tmp_path / "placement.predicted.m1.json")
    assert assemble._agreement([ended("predict", tmp_path), ended("place", tmp_path)]) == []

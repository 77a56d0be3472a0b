"""A compiled program beside the ops it came from, with the samples that ship and programs written here that correspond."""

import json
from pathlib import Path

import pytest
from placement.by_hand import Writer

from ane_sweep.__main__ import main
from ane_sweep.hwx import program
from ane_sweep.placement import chips, compiled, judge, predict
from ane_sweep.placement.tasks import Step

SAMPLES = Path(__file__).parent / "samples"
ROW, CHANNELS = ("fp16", (1, 1, 1, 77)), ("fp16", (1, 64, 1, 1))


def written(tmp_path, name):
    """The program of which a sample is the compiled form."""
    if name == "conv":
        writer = Writer(x=("fp16", (1, 3, 1, 1)))
        writer.op("conv", ("fp16", (1, 3, 1, 1)), x="x", weight=writer.const("fp16", (3, 3, 1, 1)))
    elif name == "sum":
        writer = Writer(x=CHANNELS, z=CHANNELS)
        writer.op("add", CHANNELS, x="x", y="z")
    elif name == "concat":
        writer = Writer(x=("fp16", (1, 16384, 1, 1)), z=("fp16", (1, 16, 1, 1)))
        writer.op("concat", ("fp16", (1, 16400, 1, 1)), values=["x", "z"])
    else:
        writer = Writer(x=ROW)
        writer.op(name, ROW, x="x")
    return writer.save(tmp_path / f"{name}.mlpackage")


@pytest.mark.parametrize(
    ("name", "kind", "tasks", "engine"),
    [
        ("conv", "conv", 1, "NE"),
        ("relu", "relu", 1, "NE"),
        ("sigmoid", "sigmoid", 1, "NE"),
        ("sum", "add", 1, "PE"),
        ("concat", "concat", 2, "NE"),
    ],
)
def test_each_sample_has_as_many_tasks_as_predicted_and_each_task_its_op(tmp_path, capsys, name, kind, tasks, engine):
    package = written(tmp_path, name)
    assert main(["hwx", str(SAMPLES / f"{name}.hwx"), "--program", str(package), "--json"]) == 0
    beside = json.loads(capsys.readouterr().out)["beside"]
    assert (beside["chip"], beside["ane_ops"], beside["tasks"], beside["predicted_tasks"]) == ("m1", 1, tasks, tasks)
    assert beside["ops_per_task"] == beside["predicted_ops_per_task"] == 1 / tasks
    assert beside["by_op_type"] == {kind: {"ops": 1, "predicted_tasks": tasks, "tasks": tasks}}
    assert [(row["engine"], row["op_types"]) for row in beside["rows"]] == [(engine, [kind])] * tasks


def test_the_text_says_both_counts_and_that_names_are_a_reading(tmp_path, capsys):
    assert main(["hwx", str(SAMPLES / "sum.hwx"), "--program", str(written(tmp_path, "sum"))]) == 0
    said = capsys.readouterr().out
    assert (
        "1 op that the Neural Engine takes (predicted to stay on the CPU), in 1 task (1.0 ops each); 1 predicted"
        in said
    )
    assert "the file names no ops" in said and "task 0 (PE, add, 64x1x1): add add_" in said


def test_another_program_is_seen_by_its_shapes(tmp_path):
    wrong = judge.load(written(tmp_path, "sum"))
    found = compiled.compare_with_tasks(
        predict.predict_chain(wrong, chips.get("m1"), "cpu_and_ne"), [program.read(SAMPLES / "conv.hwx")]
    )
    assert found["rows"][0]["ops"] == [] and found["by_op_type"]["add"]["tasks"] == 0


def test_tasks_of_several_ops_are_read_in_order_and_one_too_many_goes_to_its_neighbour(tmp_path):
    conv, total = (program.read(SAMPLES / f"{name}.hwx").tasks[0] for name in ("conv", "sum"))
    sites = [judge.load(written(tmp_path, name))[0].sites[0] for name in ("conv", "sum")]
    steps = [Step(sites[0], 1), Step(sites[1], 1)]
    assert [one.ops[0].type for one in compiled.match([conv, total], steps) or []] == ["conv", "add"]
    assert [one.ops[0].type for one in compiled.match([conv, conv, total], steps) or []] == ["conv", "conv", "add"]
    assert [[site.type for site in one.ops] for one in compiled.match([total], steps) or []] == [["add"]]


def test_of_a_family_without_records_tasks_are_counted_and_not_predicted(tmp_path):
    loaded = judge.load(written(tmp_path, "sum"))
    found = compiled.compare_with_tasks(
        predict.predict_chain(loaded, chips.get("m4"), "cpu_and_ne"), [program.read(SAMPLES / "sum.hwx")]
    )
    assert (found["predicted_tasks"], found["predicted_ops_per_task"], found["ops_per_task"]) == (None, None, 1.0)


def test_a_program_with_nothing_compiled_beside_it_is_a_wrong_word(tmp_path, capsys):
    assert main(["hwx", str(SAMPLES / "net.plist"), "--program", str(written(tmp_path, "sum"))]) == 2
    assert "no .hwx was read to put beside it" in capsys.readouterr().err

"""Placement and cost by torch module: sums are the rows' own, equal modules share a line, the text says what was guessed."""

import dataclasses
import json

import pytest
from placement.by_hand import Writer, conv_chain

from ane_sweep.mil.module_tree import build, choose_branches, join_alike
from ane_sweep.mil.modules import NOTES_KEY
from ane_sweep.placement import by_module, chips, judge, predict, programs


def paths(tree, most=99):
    return [(depth, branch.path) for depth, branch in choose_branches(tree, len, most)]


LAYERS = [(f"layer.{n}.{part}", kind) for n in range(3) for part, kind in (("q", "conv"), ("o", "conv"))]


def test_modules_that_are_alike_share_a_branch_and_one_that_differs_keeps_its_own():
    joined = join_alike(build(LAYERS), tuple)
    assert paths(joined) == [(0, "layer.0-2"), (1, "layer.0-2.q"), (1, "layer.0-2.o")]
    other = join_alike(build([*LAYERS, ("layer.3.q", "gather")]), tuple)
    assert (1, "layer.3.q") in paths(other) and any(path == "layer.0-2" for _, path in paths(other))


def test_no_more_branches_than_asked_for_and_the_heaviest_is_opened():
    tree = build([("a.x", 1), ("b.x", 1), ("b.y", 1), ("b.y", 1)])
    assert paths(tree, 3) == [(0, "a.x"), (0, "b")]
    assert paths(tree, 4) == [(0, "a.x"), (0, "b"), (1, "b.x"), (1, "b.y")]


MODULES = [*(f"body.{n}" for n in range(6)), "head", "head.inner"]


@pytest.fixture
def noted(tmp_path):
    """Eight convolutions with a relu behind each, whose weights have the names of their modules."""
    writer, value = Writer(x=("fp16", (1, 64, 64, 64))), "x"
    for module in MODULES:
        writer.const("fp16", (64, 64, 3, 3))
        name = f"{module.replace('.', '_')}_weight_to_fp16"
        writer.block.operations[-1].outputs[0].name = name
        value = writer.op("conv", ("fp16", (1, 64, 64, 64)), x=value, weight=name)
        value = writer.op("relu", ("fp16", (1, 64, 64, 64)), x=value)
    lines = {"": "", "body": "", **{f"body.{n}": "Block at net.py:7" for n in range(6)}}
    lines |= {"head": "Head at net.py:20", "head.inner": ""}
    writer.spec.description.metadata.userDefined[NOTES_KEY] = json.dumps(lines)
    return writer.save(tmp_path / "noted.mlpackage")


def test_the_rows_of_a_package_add_up_by_module(noted):
    prediction = predict.predict_chain([programs.load(noted)], chips.get("m4"), "cpu_and_ne")
    places = prediction.list_modules()
    tops = [one for one in places if not one.depth]
    assert [(one.path, one.alike, one.ops.total) for one in places] == [
        ("body", 1, 11), ("body.0-5", 6, 6), ("head", 1, 3), ("head.inner", 1, 1), ("(no module)", 1, 2),
    ]  # fmt: skip
    assert {one.path: one.line for one in places}["head"] == "Head at net.py:20"
    assert sum(one.ops.total for one in tops) == len(prediction.rows)
    assert sum(one.cost_share for one in tops) == pytest.approx(1, abs=1e-5)
    assert [row["module"] for row in prediction.table()][-3:] == ["head", "head.inner", ""]


def test_the_verdict_says_the_tree_and_on_what_it_rests(noted, tmp_path):
    text = str(judge.judge(noted))
    assert "in    by module, of the planner cost (modules as noted at conversion):" in text
    assert "head: " in text and "(Head at net.py:20)" in text
    content = judge.judge(noted).to_dict()
    assert content["modules_basis"] == "noted" and content["modules"][0]["ops"].keys() == {"cpu", "gpu", "ane", "total"}
    plain = judge.judge(conv_chain(tmp_path / "plain.mlpackage", 2))
    assert "no module is known" in str(plain) and plain.to_dict()["modules"] == []


def test_ops_outside_any_module_have_a_line(noted):
    prediction = predict.predict_chain([programs.load(noted)], chips.get("m4"), "cpu_and_ne")
    (*_, last) = prediction.list_modules()
    assert last.path == by_module.OUTSIDE and last.ops.total == 2
    assert by_module.describe_place(dataclasses.replace(last, cost_share=0.5)).startswith("50.0 % of the cost")


def test_two_programs_differ_by_the_modules_that_changed(noted):
    rows = judge.judge(noted).ops
    (whole,) = by_module.compare_modules(rows, rows)
    assert whole.before == whole.after and whole.cost_after == whole.cost_before == 1
    moved = [dataclasses.replace(row, preferred="cpu") if row.site.module == "head.inner" else row for row in rows]
    changes = by_module.compare_modules(rows, moved)
    assert [(one.path, one.after.cpu - one.before.cpu) for one in changes] == [("", 1), ("head", 1), ("head.inner", 1)]
    lines = by_module.format_changes(changes)
    assert lines[0].startswith("the whole program: cost 100.0 to ") and "ops 16 to 16, on the ANE 16 to 15" in lines[0]
    assert lines[2].startswith("    head.inner:") and lines[2].endswith("on the CPU 0 to 1")
    fewer = by_module.compare_modules(rows, [row for row in rows if not row.site.module.startswith("body.5")])
    assert [one.path for one in fewer][:2] == ["", "body"] and fewer[-1].path == "body.5" and fewer[-1].after.total == 0

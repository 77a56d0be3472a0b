"""Which op loses the accuracy: a program whose lossy op is known, and the worst cell of a real sweep."""

from dataclasses import replace

import constructed
import numpy as np
import pytest
from msgspec import convert

from ane_sweep.report import blocks, document, drift, page
from ane_sweep.worker.stages import drift as stage

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """y = (exp(x) + 1000) - 1000 in fp16: the sum keeps half a unit, and the difference shows it; `plain` has no such sum."""
    import coremltools as ct
    from coremltools.converters.mil.mil import Builder as mb
    from coremltools.converters.mil.mil import types

    def save(name, shift):
        spec = mb.TensorSpec(X.shape, types.fp32)

        @mb.program(input_specs=[spec], opset_version=ct.target.iOS16)
        def program(x):
            raised = mb.exp(x=x, name="raised")
            lifted = mb.add(x=raised, y=np.float32(shift), name="lifted")
            return mb.sub(x=lifted, y=np.float32(shift - 1), name="y")

        model = ct.convert(program, minimum_deployment_target=ct.target.iOS16, skip_model_load=True)
        folder = tmp_path_factory.mktemp(name)
        model.save(str(folder / "model.mlpackage"))
        return folder

    reference = tmp_path_factory.mktemp("reference")
    np.savez(reference / "inputs.npz", x=X[None], valid=np.ones((1, 64), bool))
    return {"lossy": save("lossy", 1000.0), "plain": save("plain", 0.5), "reference": reference}


def test_the_op_that_loses_is_named(folders, tmp_path):
    inputs = {"program": folders["lossy"], "reference": folders["reference"]}
    found = stage.run({"count": 3}, inputs, tmp_path).facts
    assert found["grown"][0]["type"] == "sub", "where it shows"
    assert {item["type"] for item in found["lossy"]} >= {"exp", "add"}, "where it was lost"
    values = [psnr for _, psnr in found["values"]]
    assert values[-1] < 35 < 60 < values[0]
    plain = stage.run({"count": 3}, {**inputs, "program": folders["plain"]}, tmp_path).facts
    assert min(psnr for _, psnr in plain["values"]) > 60


def test_a_program_made_from_another_is_held_against_that_one(folders, tmp_path):
    inputs = {"program": folders["plain"], "exact": folders["lossy"], "reference": folders["reference"]}
    found = stage.run({"count": 1}, inputs, tmp_path).facts
    assert found["grown"][0]["type"] in ("add", "sub") and not found["lossy"], "where the two programs part"
    assert found["left_out"] == "", "every value has its counterpart"


def test_values_without_a_counterpart_are_told(folders, tmp_path):
    result = stage.run({"count": 1}, {"program": folders["lossy"], "reference": folders["reference"]}, tmp_path)
    found = convert({"model": "x", "psnr_db": 12.0, **result.realised, **result.facts}, drift.Drift)
    assert found.left_out == ""
    found = replace(found, left_out="left out: 4 where they differ")
    told = "".join(blocks.markdown(block) for block in drift.blocks(found))
    assert "matched by their place in them; left out: 4 where they differ" in told


def test_what_was_found_is_a_plot_and_tables(folders, tmp_path):
    inputs = {"program": folders["lossy"], "reference": folders["reference"]}
    result = stage.run({"count": 3}, inputs, tmp_path)
    found = convert({"model": "<b>", "psnr_db": 12.0, **result.realised, **result.facts}, drift.Drift)
    made = drift.blocks(found)
    text = "".join(blocks.html(block) for block in made)
    assert "<b>" not in text and "<svg" in text and "lifted" in text
    assert "| lifted_cast_fp16 |" in "".join(blocks.markdown(block) for block in made)


NOTHING = drift.Drift("m", "fp16", 12.0, [], [], [], [])


@pytest.mark.parametrize("values", [[], [(0, float("inf"))], [(0, 70.0), (1, 65.0)]])
def test_a_drift_without_a_point_has_its_page_too(values):
    """Neither values that can be drawn nor an op at which the drift grows: a sentence says so."""
    made = drift.blocks(replace(NOTHING, values=values))
    text = "".join(blocks.html(block) for block in made)
    assert ("<svg" in text) == (len(values) == 2)
    assert ("no op was found" if len(values) == 2 else "None of its values") in text


def test_a_report_with_such_a_drift_is_written():
    sweep = document.Sweep(constructed.records(2, bad=False), {}, NOTHING)
    assert "None of its values" in page.texts(sweep)["report.html"]

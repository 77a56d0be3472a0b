"""Programs that take several shapes are judged, and counted, at their default one."""

import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placement.by_hand import Writer
from runtimes.conftest import mil  # noqa: F401
from runtimes.test_reference_graphs import RECIPE, graph

from ane_sweep import reference
from ane_sweep.mil import package
from ane_sweep.placement import chips, defaults, predict, programs
from ane_sweep.reference import trace
from ane_sweep.verbs.lint import lint

DEFAULT = (1, 64, 64, 64)


def convolutions(path, kind=None, layers=8, norm=False, size=64):
    """3x3 convolutions over an image of fixed, of enumerated or of any size."""
    sizes = (1, 64, size, size) if kind is None else (1, 64, None, None)
    writer = Writer(x=("fp16", sizes))
    array = writer.spec.description.input.add(name="x").type.multiArrayType
    array.shape.extend(DEFAULT)
    if kind == "enumerated":
        for shape in (DEFAULT, (1, 64, 32, 32)):
            array.enumeratedShapes.shapes.add().shape.extend(shape)
    elif kind == "range":
        for size in sizes:
            array.shapeRange.sizeRanges.add(lowerBound=size or 1, upperBound=size or 512)
    value = "x"
    same = writer.const("string", (), "same")
    for _ in range(layers):
        weight = writer.const("fp16", (64, 64, 3, 3))
        value = writer.op("conv", ("fp16", sizes), x=value, weight=weight, pad_type=same)
        value = writer.op("layer_norm" if norm else "relu", ("fp16", sizes), x=value)
    return writer.save(path)


def predicted(path, chip="m4", units="cpu_and_ne"):
    return predict.predict_chain([programs.load(path)], chips.get(chip), units)


def test_a_range_counts_at_its_default_with_a_wider_band_low_confidence_and_the_reason(tmp_path):
    fixed = predicted(convolutions(tmp_path / "fixed.mlpackage"))
    found = predicted(convolutions(tmp_path / "flexible.mlpackage", "range"))
    assert found.estimate.ms == pytest.approx(fixed.estimate.ms)
    assert found.estimate.low_ms < fixed.estimate.low_ms < fixed.estimate.high_ms < found.estimate.high_ms
    assert found.summary().ops == fixed.summary().ops and found.summary().ops.ane == 16
    assert {row["confidence"] for row in found.table()} == {"low"} and found.summary().confidence == "low"
    said = {"name": "x", "kind": "range", "default": DEFAULT, "doubt": predict.AT_DEFAULT}
    assert found.summary().flexible == [said] and fixed.summary().flexible is None


def test_enumerated_shapes_are_judged_one_by_one_as_fixed_ones_are(tmp_path):
    found = predicted(convolutions(tmp_path / "few.mlpackage", "enumerated"))
    fixed = predicted(convolutions(tmp_path / "fixed.mlpackage"))
    assert found.estimate == fixed.estimate and found.summary().confidence == fixed.summary().confidence == "medium"
    (large, at_large), (small, at_small) = found.at_shapes
    assert (large, small) == ({"x": DEFAULT}, {"x": (1, 64, 32, 32)})
    alone = predicted(convolutions(tmp_path / "small.mlpackage", size=32))
    assert at_large.estimate == fixed.estimate and at_small.estimate == alone.estimate
    assert at_small.estimate.ms < at_large.estimate.ms
    listed = found.summary().at_shapes
    assert [one["shapes"] for one in listed] == [large, small] and listed[1]["ops"]["ane"] == alone.summary().ops.ane


def test_the_verdict_on_enumerated_shapes_is_that_of_the_worst(tmp_path, capsys):
    path = str(convolutions(tmp_path / "few.mlpackage", "enumerated", layers=1))
    assert predicted(path).summary().ops.ane == 2, "the default shape pays"
    assert lint([path]) == 1
    assert "at    x [1, 64, 32, 32]: 0 of 2 ops ANE" in capsys.readouterr().out


def test_a_range_is_told_to_list_its_shapes_and_a_list_is_not(tmp_path, capsys):
    assert lint([str(convolutions(tmp_path / "any.mlpackage", "range"))]) == 0
    said = capsys.readouterr().out
    assert "do    enumerate the few shapes of x" in said and "input x takes a range of shapes" in said
    assert lint([str(convolutions(tmp_path / "few.mlpackage", "enumerated"))]) == 0
    said = capsys.readouterr().out
    assert "enumerate" not in said and "note" not in said
    assert "at    x [1, 64, 64, 64]: 16 of 16 ops ANE; about" in said


def test_layer_norm_among_enumerated_shapes_is_a_risk(tmp_path):
    found = predicted(convolutions(tmp_path / "m.mlpackage", "enumerated", norm=True))
    assert [(gate.gate, gate.effect) for gate in found.chunks[0].gates] == [("enumerated_layer_norm", "risk")]
    assert not predicted(convolutions(tmp_path / "r.mlpackage", "range", norm=True)).chunks[0].gates


def test_what_follows_from_data_stays_unknown(tmp_path):
    writer = Writer(x=("fp16", (1, 64)))
    found = writer.op("non_zero", ("int32", (None, 2)), x="x")
    writer.op("cast", ("fp16", (None, 2)), x=found, dtype=writer.const("string", (), "fp16"))
    rows = predicted(writer.save(tmp_path / "m.mlpackage")).table()
    assert "only known at run time: int32[?,2]" in rows[1]["reason"]


def test_an_input_without_a_default_says_so(tmp_path, capsys):
    writer = Writer(x=("fp16", (1, None)))
    writer.op("relu", ("fp16", (1, None)), x="x")
    assert lint([str(writer.save(tmp_path / "m.mlpackage"))]) == 1
    assert "its default one is not stated" in capsys.readouterr().out


def agrees(mil, path, inputs, body, flexible):  # noqa: F811
    """Every size that the prediction fills in is the one that the reference runtime finds at the default shape."""
    mil.write(path, inputs, body, flexible=flexible)
    model = reference.load(path)
    zeros = {name: np.zeros(feature.shape, feature.dtype) for name, feature in model.inputs.items()}
    true = {seen.name: seen.shape for seen in trace.record_values(model, zeros)}
    sites = [site for site in programs.load(path).sites if site.name in true]
    wrong = [
        (site, true[site.name])
        for site in sites
        if site.outputs[0].is_static and site.outputs[0].shape != true[site.name]
    ]
    assert not wrong
    return sites


def forgotten(path):
    """The same program with all sizes of its values undeclared: its input has a range of shapes, and a default one."""
    found = package.read(path)
    function = found.spec.mlProgram.functions["main"]
    (block,) = function.block_specializations.values()
    (feature,) = found.spec.description.input
    feature.type.multiArrayType.shapeRange.sizeRanges.add(lowerBound=1, upperBound=-1)
    made = [value for proto in block.operations if proto.type != "const" for value in proto.outputs]
    for value in [*function.inputs, *made]:
        for dimension in value.type.tensorType.dimensions:
            dimension.unknown.variadic = False
    found.model_path.write_bytes(found.spec.SerializeToString())
    return path


HOW = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}


@settings(max_examples=15, derandomize=True, **HOW)
@given(recipe=RECIPE, shape=st.sampled_from([(2, 3), (3, 2, 4), (1, 4, 2, 3)]))
def test_sizes_that_a_program_does_not_declare_are_found_again(mil, tmp_path, recipe, shape):  # noqa: F811
    x = np.zeros(shape, np.float32)
    path = mil.write(tmp_path / "m.mlpackage", {"x": x}, lambda x: mil.mb.identity(x=graph(mil.mb, x, recipe)))
    declared = [[tensor.shape for tensor in site.outputs] for site in programs.load(path).sites]
    found = [[tensor.shape for tensor in site.outputs] for site in programs.load(forgotten(path)).sites]
    shutil.rmtree(path)
    assert found == declared


def test_sizes_are_followed_through_what_programs_compute_from_shapes(mil, tmp_path):  # noqa: F811
    def body(x):  # (n, 4)
        mb = mil.mb
        size = mb.shape(x=x)
        rows = mb.gather(x=size, indices=np.int32([0]), axis=0)
        half = mb.floor_div(x=rows, y=np.int32([2]))
        return (
            mb.reshape(x=x, shape=mb.concat(values=(rows, np.int32([2, 2])), axis=0)),
            mb.tile(x=x, reps=mb.concat(values=(half, np.int32([3])), axis=0)),
            mb.fill(shape=mb.mul(x=size, y=np.int32([2, 1])), value=np.float32(3)),
            mb.range_1d(start=np.int32(0), end=mb.squeeze(x=rows), step=np.int32(1)),
            mb.slice_by_index(x=x, begin=[0, 1], end=mb.concat(values=(half, np.int32([3])), axis=0)),
            mb.split(x=x, num_splits=2, axis=0)[1],
            mb.matmul(x=x, y=x, transpose_y=True),
        )

    x = np.zeros((2, 4), np.float32)
    sites = agrees(mil, tmp_path / "m.mlpackage", {"x": x}, body, {"x": (mil.ct.RangeDim(2, 10, default=6), 4)})
    assert all(site.outputs[0].is_static and site.outputs[0].is_default for site in sites)
    assert [site.type for site in sites] == ["reshape", "tile", "fill", "range_1d", "slice_by_index", "split", "matmul"]


def test_a_default_of_another_rank_is_no_default():
    writer = Writer(x=("fp16", (1, None)))
    feature = writer.spec.description.input.add(name="x")
    feature.type.multiArrayType.shape.extend([1, 2, 3])
    assert defaults.of_input(feature, 2) is None and defaults.of_input(feature, 3) == (1, 2, 3)

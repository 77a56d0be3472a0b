"""Rewrites that change the interface: only by name, proven with the host's part, legal for coremltools, once and no more."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from fix.checks import assert_legal, count_ops, save
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("coremltools")
import coremltools as ct
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import get_new_symbol, types

from ane_sweep.__main__ import main
from ane_sweep.errors import ConfigError
from ane_sweep.fix import driver, whole
from ane_sweep.mil import package

FEW = settings(max_examples=5, deadline=None)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield lambda: Path(tempfile.mkdtemp(dir=made)) / "m.mlpackage"


def apply(name, source, sizes=""):
    """Apply a rewrite by name and check it. Return the report, and the package read."""
    target = source.with_name(f"{name}.mlpackage")
    report = driver.fix(source, target, only=(name,), sizes=sizes)
    assert [(trial.rewrite, trial.status) for trial in report.trials] == [(name, "applied")], report.trials
    assert report.trials[0].worst.difference == 0.0
    assert_legal(target)
    assert driver.fix(target, only=(name,)).trials == []
    assert package.read(target).spec.description.metadata == package.read(source).spec.description.metadata
    return report, package.read(target)


def flexible(path, lengths=(4, 64, 8), target="iOS18", second=True):
    """Write a small program whose sizes, reshapes and whole numbers follow from a range of lengths."""
    length = get_new_symbol()
    specs = [mb.TensorSpec((1, length, 6), types.fp32)] + [mb.TensorSpec((1, length), types.fp32)] * second
    weight = np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)

    def body(x, mask=None):
        rows = mb.gather(x=mb.shape(x=x), indices=1, axis=0)
        heads = mb.reshape(x=mb.linear(x=x, weight=weight), shape=mb.concat(values=[1, rows, 2, 3], axis=0))
        q = mb.transpose(x=heads, perm=[0, 2, 1, 3])
        scores = mb.matmul(x=q, y=q, transpose_y=True)
        scores = mb.add(x=scores, y=mb.expand_dims(x=mask, axes=[1, 2])) if mask is not None else scores
        y = mb.transpose(x=mb.matmul(x=mb.softmax(x=scores, axis=-1), y=q), perm=[0, 2, 1, 3])
        y = mb.reshape(x=y, shape=mb.concat(values=[1, rows, 6], axis=0))
        places = mb.cast(x=mb.range_1d(start=0, end=rows, step=1), dtype="fp32")
        return mb.add(x=y, y=mb.expand_dims(x=places, axes=[0, 2]), name="out")

    goal = getattr(ct.target, target)
    program = mb.program(input_specs=specs, opset_version=goal)(
        (lambda x, mask: body(x, mask)) if second else (lambda x: body(x))
    )
    low, high, default = lengths
    sizes = ct.RangeDim(low, high, default=default)
    inputs = [ct.TensorType(name="x", shape=(1, sizes, 6))] + [ct.TensorType(name="mask", shape=(1, sizes))] * second
    model = ct.convert(
        program, inputs=inputs, convert_to="mlprogram", minimum_deployment_target=goal, skip_model_load=True
    )  # fmt: skip
    model.save(str(path))
    return path


@pytest.fixture(scope="module")
def ranged(tmp_path_factory):
    return flexible(tmp_path_factory.mktemp("ranged") / "m.mlpackage")


def test_a_range_becomes_functions_over_one_weight_file(ranged):
    report, made = apply("fixed_shapes", ranged)
    functions = made.spec.mlProgram.functions
    assert set(functions) == {"at_8", "at_16", "at_32", "at_64"}
    assert made.spec.description.defaultFunctionName == "at_8" and made.spec.specificationVersion >= 9
    assert not {"shape", "gather"} & {op.type for op in functions["at_8"].block_specializations["CoreML8"].operations}
    described = next(one for one in made.spec.description.functions if one.name == "at_16")
    assert [list(one.type.multiArrayType.shape) for one in described.input] == [[1, 16, 6], [1, 16]]
    assert [list(one.type.multiArrayType.shape) for one in described.output] == [[1, 16, 6]]
    assert not described.input[0].type.multiArrayType.HasField("shapeRange")
    weights = "Data/com.apple.CoreML/weights/weight.bin"
    assert (report.written / weights).stat().st_ino == (ranged / weights).stat().st_ino
    assert "at_8, at_16, at_32, at_64" in report.trials[0].reason


@pytest.mark.slow
@pytest.mark.ci
@settings(max_examples=4, deadline=None)
@given(lengths=st.tuples(st.integers(1, 9), st.integers(10, 40), st.integers(0, 40)))
def test_ranges_of_any_limits_compute_the_same(folder, lengths):
    low, high, default = lengths
    default = min(high, max(low, default))
    _, made = apply("fixed_shapes", flexible(folder(), (low, high, default)))
    names = {int(name.removeprefix("at_")) for name in made.spec.mlProgram.functions}
    assert names == {max(low, -(-high // times)) for times in (1, 2, 4, 8)} | {default}


def test_sizes_are_chosen_by_the_user_and_checked(ranged, capsys):
    _, made = apply("fixed_shapes", ranged, "12,48x48")
    assert set(made.spec.mlProgram.functions) == {"at_12", "at_48"}
    assert made.spec.description.defaultFunctionName == "at_12"
    for sizes, words in (("65", "range of axis 1 of `x`, 4 to 64"), ("8x8x8", "one for each"), ("a", "as 128")):
        with pytest.raises(ConfigError, match=words):
            driver.fix(ranged, only=("fixed_shapes",), sizes=sizes)
    assert main(["fix", str(ranged), "--sizes", "16"]) == 2 and "fixed_shapes" in capsys.readouterr().err


def test_below_coreml8_one_input_lists_its_shapes(folder):
    source = flexible(folder(), target="iOS16", second=False)
    _, made = apply("fixed_shapes", source)
    array = made.spec.description.input[0].type.multiArrayType
    assert [tuple(one.shape)[1] for one in array.enumeratedShapes.shapes] == [8, 16, 32, 64]
    assert array.WhichOneof("ShapeFlexibility") == "enumeratedShapes"
    report = driver.fix(flexible(folder(), target="iOS16"), only=("fixed_shapes",))
    assert report.trials[0].status == "refused" and "target=iOS18" in report.trials[0].reason


@pytest.mark.slow
def test_functions_compute_what_coremltools_makes_of_the_shapes(ranged, folder):
    _, made = apply("fixed_shapes", ranged)
    theirs = folder()
    shapes = {f"at_{size}": {"x": (1, size, 6), "mask": (1, size)} for size in (8, 64)}
    model = ct.models.MLModel(str(ranged), skip_model_load=True)
    ct.utils.materialize_dynamic_shape_mlmodel(model, shapes, str(theirs))
    other = package.read(theirs)
    for name in shapes:
        given = whole.draw_function_inputs(made, name, np.random.default_rng(0))
        one, two = (whole.run_function(each, name, given, "fp32") for each in (made, other))
        np.testing.assert_allclose(one["out"], two["out"], atol=1e-5)


def test_without_its_name_it_is_offered_and_not_applied(ranged, tmp_path, capsys):
    assert main(["fix", str(ranged), "-o", str(tmp_path / "b.mlpackage"), "--json"]) == 0
    found = {trial["rewrite"]: trial for trial in json.loads(capsys.readouterr().out)["trials"]}
    assert found["fixed_shapes"]["status"] == "by name" and "--only fixed_shapes" in found["fixed_shapes"]["reason"]
    assert not (tmp_path / "b.mlpackage").exists()
    assert main(["fix", str(ranged), "--only", "fixed_shapes", "--explain", "--diff"]) == 0
    assert "host      it chooses the function" in capsys.readouterr().out
    assert main(["fix", "--list"]) == 0 and "by name" in capsys.readouterr().out


def stateful(path, shape, position=1):
    """Write a program that writes one slot of a state, reads it, and halves it."""

    @mb.program(
        input_specs=[mb.TensorSpec((*shape[:-2], 1, shape[-1]), types.fp16), mb.StateTensorSpec(shape, types.fp16)],
        opset_version=ct.target.iOS18,
    )
    def program(x, cache):
        old = mb.read_state(input=cache)
        rank = len(shape)
        begin, end = [0] * rank, list(shape)
        begin[-2], end[-2] = position, position + 1
        new = mb.slice_update(x=old, update=x, begin=begin, end=end)
        held = mb.coreml_update_state(state=cache, value=new)
        mb.coreml_update_state(state=cache, value=mb.mul(x=held, y=np.float16(0.5)))
        return mb.add(x=mb.reduce_sum(x=held, axes=[-1]), y=np.float16(1), name="out")

    model = ct.convert(program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS18, skip_model_load=True)
    model.save(str(path))
    return path


@FEW
@given(shape=st.lists(st.integers(1, 3), min_size=1, max_size=3), width=st.integers(1, 70))
def test_states_get_a_width_that_is_a_multiple_of_32(folder, shape, width):
    source = stateful(folder(), (*shape, 3, width))
    if width % 32 == 0:
        assert driver.fix(source, only=("state_width",)).trials == []
        return
    report, made = apply("state_width", source)
    wide = -(-width // 32) * 32
    assert report.trials[0].reason.startswith(f"cache {width} -> {wide}")
    assert list(made.spec.description.state[0].type.stateType.arrayType.shape) == [*shape, 3, wide]
    assert report.before.refused and report.after.refused < report.before.refused


def test_a_wrong_width_does_not_pass_the_proof(folder, monkeypatch):
    from ane_sweep.fix.by_name import state_width

    monkeypatch.setattr(state_width, "_pad", lambda value, width: np.ones((*value.shape[:-1], width), value.dtype))
    report = driver.fix(stateful(folder(), (1, 3, 40)), only=("state_width",))
    assert report.trials[0].status == "refused" and "fp32 differs" in report.trials[0].reason


@FEW
@given(shape=st.lists(st.integers(1, 4), min_size=2, max_size=4), more=st.integers(1, 3), data=st.data())
def test_a_cache_with_new_values_returns_these_alone(folder, shape, more, data):
    axis, dtype = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.sampled_from(["fp16", "fp32"]))
    new = [more if place == axis else size for place, size in enumerate(shape)]

    def body(cache, x):
        half = mb.cast(x=cache, dtype="fp16") if dtype == "fp32" else cache
        whole = mb.concat(values=[half, mb.relu(x=x)], axis=axis)
        out = mb.cast(x=whole, dtype="fp32", name="kept") if dtype == "fp32" else mb.identity(x=whole, name="kept")
        return out, mb.reduce_sum(x=whole, axes=[axis], keep_dims=False)

    source = save(folder(), body, cache=(dtype, shape), x=("fp16", new))
    _, made = apply("new_slice_out", source)
    feature = made.spec.description.output[0]
    assert feature.name == "kept_new" and list(feature.type.multiArrayType.shape) == new


def test_other_concats_are_no_cache(folder):
    def body(cache, x):
        both = mb.concat(values=[mb.relu(x=cache), x], axis=0)
        first = mb.concat(values=[x, cache], axis=0)
        return both, mb.relu(x=first), mb.concat(values=[cache, x, x], axis=0)

    assert (
        driver.fix(save(folder(), body, cache=("fp16", (4, 3)), x=("fp16", (2, 3))), only=("new_slice_out",)).trials
        == []
    )


@FEW
@given(kind=st.sampled_from(["topk", "reduce_argmax", "argsort"]), columns=st.integers(4, 9), cast=st.booleans())
def test_choices_at_the_end_become_scores(folder, kind, columns, cast):
    def body(x):
        scores = mb.sin(x=mb.relu(x=x))
        if kind == "topk":
            values, places = mb.topk(x=scores, k=3, axis=-1)
            return mb.cast(x=values, dtype="fp32") if cast else values, places
        if kind == "argsort":
            return mb.argsort(x=scores, axis=-1)
        best = mb.reduce_argmax(x=scores, axis=-1, keep_dims=True)
        return mb.squeeze(x=best, axes=[1]) if cast else best

    report, _ = apply("choices_out", save(folder(), body, x=("fp16", (3, columns))))
    assert kind not in count_ops(report.written) and report.after.ops < report.before.ops


def test_choices_that_the_program_goes_on_with_stay(folder):
    def body(x):
        best = mb.reduce_argmax(x=mb.relu(x=x), axis=-1, keep_dims=False)
        return best, mb.gather(x=np.ones((8, 4), np.float16), indices=best, axis=0)

    assert driver.fix(save(folder(), body, x=("fp16", (3, 8))), only=("choices_out",)).trials == []


@FEW
@given(rows=st.integers(2, 9), width=st.integers(1, 20), both=st.booleans())
def test_lookups_become_inputs_and_a_function(folder, rows, width, both):
    table = np.random.default_rng(0).standard_normal((rows, width)).astype(np.float16)

    def body(ids, kinds):
        x = mb.gather(x=table, indices=ids, axis=0)
        if not both:
            return mb.relu(x=x), mb.add(x=kinds, y=np.float32(1))
        return mb.relu(
            x=mb.add(x=x, y=mb.gather(x=table[::-1].copy(), indices=mb.cast(x=kinds, dtype="int32"), axis=0))
        )

    source = save(folder(), body, ids=("int32", (2, 5)), kinds=("fp32", (2, 5)))
    _, made = apply("lookups_out", source)
    functions = made.spec.mlProgram.functions
    assert set(functions) == {"main", "lookup"} and made.spec.description.defaultFunctionName == "main"
    assert len(functions["lookup"].inputs) == 1 + both and len(functions["main"].inputs) == 2
    assert "gather" not in {op.type for op in functions["main"].block_specializations["CoreML8"].operations}


def test_lookups_by_what_the_program_computes_stay(folder):
    def body(x, ids):
        best = mb.reduce_argmax(x=mb.relu(x=x), axis=-1, keep_dims=False)
        return mb.gather(x=np.ones((8, 4), np.float16), indices=best, axis=0), mb.add(x=ids, y=np.int32(1))

    given = {"x": ("fp16", (3, 8)), "ids": ("int32", (3,))}
    assert driver.fix(save(folder(), body, **given), only=("lookups_out",)).trials == []
    older = save(
        folder(), lambda ids: mb.gather(x=np.ones((8, 4), np.float16), indices=ids), "iOS16", ids=("int32", (3,))
    )
    assert driver.fix(older, only=("lookups_out",)).trials == []

"""The reference runtime as a whole: borders, errors, folding, memory, chains."""

from pathlib import Path

import numpy as np
import pytest

from ane_sweep.bridge.runtimes import RUNTIMES, cannot
from ane_sweep.errors import PackageError, UnsupportedOp
from ane_sweep.worker.runtimes import reference
from ane_sweep.worker.runtimes.reference import ReferenceRuntime

X = np.linspace(-1, 1, 12, dtype=np.float16).reshape(3, 4)


@pytest.fixture
def double(mil, tmp_path) -> Path:
    folder = tmp_path / "program"
    folder.mkdir()
    mil.write(folder / "model.mlpackage", {"x": X}, lambda x: mil.mb.add(x=x, y=x))
    return folder


def test_what_it_says_of_itself(double, mil, tmp_path):
    runtime = reference.load({}, {"program": double})
    assert runtime.realised["numerics"] == "fp16 storage, fp32 accumulation"
    assert runtime.realised["compute_units"] is None and runtime.realised["chunks"] == 1
    wide = mil.write(tmp_path / "wide.mlpackage", {"x": X.astype(np.float32)}, lambda x: mil.mb.add(x=x, y=x))
    assert ReferenceRuntime([wide]).realised["numerics"] == "fp32"
    assert (
        cannot("reference") is None
        and RUNTIMES["reference"].needs == "program"
        and "compute_units" not in RUNTIMES["reference"].honours
    )


def test_inputs_are_cast_to_the_declared_type(double):
    runtime = reference.load({}, {"program": double})
    for given in (X, X.astype(np.float64), np.ones((3, 4), np.int64), np.ones((3, 4), bool), X.T.copy().T):
        (found,) = runtime.predict({"x": given}).values()
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, 2 * np.asarray(given).astype(np.float16))


def test_inputs_are_neither_kept_nor_changed(double):
    runtime = reference.load({}, {"program": double})
    given = X.copy()
    (first,) = runtime.predict({"x": given}).values()
    kept = first.copy()
    given[:] = 0
    runtime.predict({"x": given})
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, ["'x' is missing"]),
        ({"x": X, "y": X}, ["'y' is not an input"]),
        ({"x": X[:2]}, ["shape [2, 4], not [3, 4]"]),
        ({"x": X.astype("U4")}, ["which is not float16"]),
        ({"z": X}, ["'x' is missing", "'z' is not an input", "It takes x (float16 [3, 4])"]),
    ],
)
def test_wrong_inputs_are_one_clear_error(double, inputs, words):
    with pytest.raises(PackageError) as caught:
        reference.load({}, {"program": double}).predict(inputs)
    assert all(word in str(caught.value) for word in words)


def test_fractions_are_not_cut_off_silently(mil, tmp_path):
    ids = np.zeros((1, 3), np.int32)
    path = mil.write(tmp_path / "ids.mlpackage", {"ids": ids}, lambda ids: mil.mb.add(x=ids, y=np.int32(1)))
    with pytest.raises(PackageError, match="'ids' is float32, which is not int32"):
        ReferenceRuntime([path]).predict({"ids": ids.astype(np.float32)})


def test_an_op_it_lacks_is_named_before_anything_runs(mil, tmp_path, monkeypatch):
    from ane_sweep.reference import plan

    path = mil.write(tmp_path / "m.mlpackage", {"x": X}, lambda x: mil.mb.tanh(x=mil.mb.add(x=x, y=x), name="far"))
    monkeypatch.delitem(plan.OPS, "tanh")
    with pytest.raises(UnsupportedOp, match=r"`tanh` making `far` \(position \d+ of \d+\).*runtime=torch_eager"):
        ReferenceRuntime([path])


def test_an_index_out_of_range_names_the_op(mil, tmp_path):
    table, ids = np.eye(4, dtype=np.float16), np.zeros((1, 3), np.int32)
    path = mil.write(tmp_path / "m.mlpackage", {"ids": ids}, lambda ids: mil.mb.gather(x=table, indices=ids, axis=0))
    runtime = ReferenceRuntime([path])
    with pytest.raises(PackageError, match=r"`gather` making .* failed while it ran"):
        runtime.predict({"ids": ids + 4})
    assert runtime.predict({"ids": ids}), "and the runtime is still usable"


def test_constants_are_computed_once_and_dead_values_freed(mil, tmp_path):
    big = np.ones((64, 64), np.float16)

    def body(x):
        mb = mil.mb
        constant = mb.matmul(x=mb.transpose(x=big, perm=(1, 0)), y=big)
        for _ in range(6):
            x = mb.add(x=x, y=constant)
        return x

    plan = ReferenceRuntime([mil.write(tmp_path / "m.mlpackage", {"x": big}, body)]).models[0].plan
    assert [op.type for op in plan.ops] == ["add"] * 6
    freed = [place for *_, frees in plan.steps for place in frees]
    made = [fills for _, _, fills, _ in plan.steps]
    assert set(made[:-1]) <= set(freed) and made[-1] not in freed


def test_a_plan_with_other_weights_is_that_of_a_program_with_them(mil, tmp_path):
    """Read from the table, held by a step, changed before use, read inside a branch: and the steps before stay."""
    from ane_sweep.mil import package
    from ane_sweep.reference import plan
    from ane_sweep.reference.model import Model
    from ane_sweep.reference.numerics import AS_DECLARED

    rng = np.random.default_rng(5)
    old, new = ({name: rng.random((4, 4), np.float32).astype(np.float16) for name in "abcd"} for _ in range(2))
    x = rng.random((4, 4), np.float32).astype(np.float16)

    def body(values):
        def build(x):
            mb = mil.mb
            const = {name: mb.const(val=value, name=name) for name, value in values.items()}
            made = mb.linear(x=mb.add(x=x, y=const["a"]), weight=const["b"])
            made = mb.matmul(x=made, y=mb.mul(x=mb.transpose(x=const["c"], perm=(1, 0)), y=const["a"]))
            more = mb.greater(x=mb.reduce_sum(x=made, keep_dims=False), y=np.float16(0))
            return mb.cond(pred=more, _true_fn=lambda: mb.sub(x=made, y=const["d"]), _false_fn=lambda: mb.exp(x=made))

        return mil.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.mlpackage", {"x": x}, build)

    known: dict = {}
    model = Model(package.read(body(old)), "", AS_DECLARED, True, known)
    given = model.prepare_inputs({"x": x}, None)
    steps = [op.type for op in model.plan.ops]
    for names, begins in (("a", "add"), ("b", "linear"), ("c", "matmul"), ("d", "cond"), ("abcd", "add")):
        changed, first = plan.rebind_constants(model.plan, model.program, known, {name: new[name] for name in names})
        assert steps[first] == begins
        expected = ReferenceRuntime([body(old | {name: new[name] for name in names})]).predict({"x": x})
        for made in (model.to_outputs(changed.run(given)), model.to_outputs(changed.run(given))):
            np.testing.assert_array_equal(*made.values(), *expected.values())
    assert not np.array_equal(*model.predict({"x": x}).values(), *expected.values())


def test_weights_are_used_where_they_are_mapped(mil, tmp_path):
    """A linear layer's weight is the file's own memory, not a copy."""
    weight = np.arange(64 * 32, dtype=np.float16).reshape(64, 32) / 999
    x = np.ones((1, 32), np.float16)
    path = mil.write(tmp_path / "m.mlpackage", {"x": x}, lambda x: mil.mb.linear(x=x, weight=weight))
    from ane_sweep.mil import graph
    from ane_sweep.reference.site import from_numpy

    program = graph.load(path)
    held = next(op for op in program.ops if op.type == "const" and program.tensor_type(op.outputs[0]).shape == (64, 32))
    array = program.constant(held)
    assert from_numpy(array).data_ptr() == array.ctypes.data
    np.testing.assert_array_equal(array, weight)


def test_every_value_is_contiguous_and_aligned(mil, tmp_path):
    """The second law of the room: kernels must not see how a value came about."""

    def body(x):
        mb = mil.mb
        turned = mb.transpose(x=x, perm=(1, 0))
        part = mb.slice_by_index(x=turned, begin=[1, 0], end=[4, 3])
        a, b = mb.split(x=x, split_sizes=[1, 3], axis=1)
        picked = mb.gather(x=x, indices=np.array([2, 0], np.int32), axis=0)
        return part, a, b, picked, mb.tile(x=x, reps=(2, 1)), mb.reverse(x=x, axes=[0]), mb.softmax(x=turned, axis=0)

    (model,) = ReferenceRuntime([mil.write(tmp_path / "m.mlpackage", {"x": X}, body)]).models
    import torch

    (made,) = model.tensors([{"x": model.tensor_in("x", torch.from_numpy(X.copy()))}])
    for value in made.values():
        assert value.is_contiguous() and value.data_ptr() % 64 == 0


@pytest.mark.parametrize("target", ["iOS16", "iOS17", "iOS18", "iOS26"])
def test_opsets(mil, tmp_path, target):
    path = mil.write(tmp_path / "m.mlpackage", {"x": X}, lambda x: mil.mb.gelu(x=x, mode="EXACT"), target)
    assert ReferenceRuntime([path]).predict({"x": X})


def test_two_runs_give_the_same_bits(mil, tmp_path):
    rng = np.random.default_rng(3)
    x, weight = rng.standard_normal((40, 96)).astype(np.float32), rng.standard_normal((96, 96)).astype(np.float32)
    path = mil.write(
        tmp_path / "m.mlpackage", {"x": x}, lambda x: mil.mb.softmax(x=mil.mb.linear(x=x, weight=weight), axis=-1)
    )
    first, second = (next(iter(ReferenceRuntime([path]).predict({"x": x}).values())) for _ in range(2))
    np.testing.assert_array_equal(first, second)

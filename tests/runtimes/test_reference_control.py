"""Control flow, lists, states, functions, classes: what is not one tensor through one kernel."""

import numpy as np
import pytest

from ane_sweep import reference
from ane_sweep.errors import PackageError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_cond(mil, tmp_path):
    def body(x, flag):
        mb = mil.mb
        chosen = mb.cond(
            pred=mb.cast(x=mb.squeeze(x=flag), dtype="bool"),
            _true_fn=lambda: mb.add(x=x, y=np.float32(1)),
            _false_fn=lambda: mb.mul(x=x, y=mb.exp(x=np.float32([0, 0, 0]))),
        )
        return mb.sub(x=chosen, y=np.float32(5))

    flag = np.ones((1,), np.int32)
    model = reference.load(mil.write(tmp_path / "m.mlpackage", {"x": X, "flag": flag}, body))
    np.testing.assert_array_equal(next(iter(model.predict({"x": X, "flag": flag}).values())), X + 1 - 5)
    np.testing.assert_array_equal(next(iter(model.predict({"x": X, "flag": flag * 0}).values())), X - 5)


def test_a_loop_counts_and_sees_what_is_around_it(mil, tmp_path):
    def body(x, rounds):
        mb = mil.mb
        doubled = mb.mul(x=x, y=np.float32(2))
        _, total = mb.while_loop(
            _cond=lambda i, total: mb.less(x=i, y=mb.squeeze(x=rounds)),
            _body=lambda i, total: (mb.add(x=i, y=np.int32(1)), mb.add(x=total, y=doubled)),
            loop_vars=(np.int32(0), x),
        )
        return total

    rounds = np.array([3], np.int32)
    model = reference.load(mil.write(tmp_path / "m.mlpackage", {"x": X, "rounds": rounds}, body))
    for count in (0, 1, 7):
        found = next(iter(model.predict({"x": X, "rounds": rounds * 0 + count}).values()))
        np.testing.assert_array_equal(found, X + 2 * count * X)


def test_a_loop_that_grows_a_value(mil, tmp_path):
    """The shape of a loop's variable changes from round to round, and a nested loop reads it."""

    def body(x):
        mb = mil.mb
        _, grown = mb.while_loop(
            _cond=lambda i, grown: mb.less(x=i, y=np.int32(3)),
            _body=lambda i, grown: (mb.add(x=i, y=np.int32(1)), mb.concat(values=(grown, x), axis=0)),
            loop_vars=(np.int32(0), mb.identity(x=x)),
        )
        return mb.reduce_sum(x=grown, axes=[1], keep_dims=False)

    model = reference.load(mil.write(tmp_path / "m.mlpackage", {"x": X}, body))
    np.testing.assert_array_equal(next(iter(model.predict({"x": X}).values())), np.tile(X.sum(1), 4))


def test_lists(mil, tmp_path):
    def body(x):
        mb = mil.mb
        ls = mb.make_list(init_length=2, dynamic_length=True, elem_shape=(3,), dtype="fp32")
        row = mb.squeeze(x=mb.slice_by_index(x=x, begin=[1, 0], end=[2, 3]), axes=[0])
        ls = mb.list_write(ls=ls, index=1, value=row)
        longer = mb.list_scatter(ls=ls, indices=np.int32([0, 3]), value=x)
        return (
            mb.list_read(ls=ls, index=1),
            mb.list_gather(ls=longer, indices=np.int32([3, 2, 0])),
            mb.cast(x=mb.list_length(ls=longer), dtype="fp32"),
        )

    model = reference.load(mil.write(tmp_path / "m.mlpackage", {"x": X}, body))
    read, gathered, length = model.predict({"x": X}).values()
    np.testing.assert_array_equal(read, X[1])
    np.testing.assert_array_equal(gathered, [X[1], [0, 0, 0], X[0]])
    np.testing.assert_array_equal(length, [4])


@pytest.fixture(scope="module")
def counting(mil, tmp_path_factory):
    """A state that x is added to; the output is twice the new state."""

    def body(x, memory):
        mb = mil.mb
        value = mb.add(x=mb.read_state(input=memory), y=x)
        after = mb.coreml_update_state(state=memory, value=value)
        return mb.mul(x=after, y=np.float16(2))

    path = tmp_path_factory.mktemp("state") / "m.mlpackage"
    return mil.write(path, {"x": X.astype(np.float16)}, body, states={"memory": (2, 3)})


def test_a_state_lasts_from_one_prediction_to_the_next(counting):
    model = reference.load(counting)
    state, other = model.new_state(), model.new_state()
    x = X.astype(np.float16)
    for count in (1, 2, 3):
        np.testing.assert_array_equal(next(iter(model.predict({"x": x}, state).values())), 2 * count * x)
    np.testing.assert_array_equal(state.read("memory"), 3 * x)
    np.testing.assert_array_equal(other.read("memory"), 0 * x)
    state.write("memory", np.full((2, 3), 7.0))
    np.testing.assert_array_equal(next(iter(model.predict({"x": x}, state).values())), 2 * (7 + x))


def test_states_that_do_not_fit(counting):
    model = reference.load(counting)
    with pytest.raises(PackageError, match=r"keeps states \(memory\); give one made by new_state"):
        model.predict({"x": X})
    with pytest.raises(PackageError, match="there is no state 'other'; the model's states: memory"):
        model.new_state().read("other")
    with pytest.raises(PackageError, match=r"state 'memory' takes float16 \[2, 3\]"):
        model.new_state().write("memory", np.zeros(3))


def test_a_state_in_fp32(counting):
    model = reference.load(counting, numerics="fp32")
    state = model.new_state()
    model.predict({"x": np.full((2, 3), 1, np.float16)}, state)
    model.predict({"x": np.full((2, 3), 2048, np.float16)}, state)
    assert state.read("memory").dtype == np.float16
    np.testing.assert_array_equal(state.cells["memory"].value.cpu(), np.full((2, 3), 2049))


def test_functions_by_name(mil, tmp_path):
    parts = {}
    for name, factor in (("double", 2), ("triple", 3)):
        parts[name] = mil.write(
            tmp_path / f"{name}.mlpackage", {"x": X}, lambda x, f=factor: mil.mb.mul(x=x, y=np.float32(f), name="y")
        )
    described = mil.ct.utils.MultiFunctionDescriptor()
    for name, path in parts.items():
        described.add_function(str(path), src_function_name="main", target_function_name=name)
    described.default_function_name = "triple"
    whole = tmp_path / "whole.mlpackage"
    mil.ct.utils.save_multifunction(described, str(whole))
    for name, factor in (("double", 2), ("triple", 3), ("", 3)):
        model = reference.load(whole, function=name)
        np.testing.assert_array_equal(model.predict({"x": X})["y"], factor * X)
        assert model.functions == ["double", "triple"] and model.function == (name or "triple")
    with pytest.raises(PackageError, match="has no function 'four'; its functions: double, triple"):
        reference.load(whole, function="four")


@pytest.mark.parametrize("labels", [["cat", "dog", "owl"], [7, 8, 9]])
def test_classes(mil, tmp_path, labels):
    import torch

    net = torch.jit.trace(torch.nn.Softmax(-1), torch.zeros(1, 3))
    model = mil.ct.convert(
        net,
        inputs=[mil.ct.TensorType(name="x", shape=(1, 3))],
        classifier_config=mil.ct.ClassifierConfig(labels),
        minimum_deployment_target=mil.ct.target.iOS16,
        compute_precision=mil.ct.precision.FLOAT32,
        skip_model_load=True,
    )
    model.save(str(tmp_path / "m.mlpackage"))
    found = reference.load(tmp_path / "m.mlpackage").predict({"x": np.float32([[0, 2, 1]])})
    assert found["classLabel"] == labels[1]
    chances = found["classLabel_probs"]
    assert list(chances) == labels and abs(sum(chances.values()) - 1) < 1e-6


@pytest.mark.parametrize("color", ["RGB", "BGR", "GRAYSCALE"])
def test_images(mil, tmp_path, color):
    image = pytest.importorskip("PIL.Image")
    import torch

    channels = 1 if color == "GRAYSCALE" else 3
    shape = (1, channels, 4, 5)
    layout = getattr(mil.ct.colorlayout, color)
    net = torch.jit.trace(torch.nn.ReLU(), torch.zeros(shape))
    model = mil.ct.convert(
        net,
        inputs=[mil.ct.ImageType(name="x", shape=shape, color_layout=layout)],
        outputs=[mil.ct.ImageType(name="y", color_layout=layout)],
        minimum_deployment_target=mil.ct.target.iOS16,
        skip_model_load=True,
    )
    model.save(str(tmp_path / "m.mlpackage"))
    given = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    picture = image.fromarray(given) if channels == 3 else image.fromarray(given[..., 0])
    loaded = reference.load(tmp_path / "m.mlpackage")
    found = loaded.predict({"x": picture})["y"]
    assert found.mode == ("RGBA" if channels == 3 else "L")
    np.testing.assert_array_equal(np.asarray(found.convert(picture.mode)), np.asarray(picture))
    with pytest.raises(PackageError, match=r"is an image of shape \[1, \d, 5, 4\]"):
        loaded.predict({"x": picture.rotate(90, expand=True)})


def test_a_pipeline(mil, tmp_path):
    models = []
    for source, target, factor in (("x", "h", 2), ("h", "y", 5)):
        path = mil.write(
            tmp_path / f"{target}.mlpackage",
            {source: X},
            lambda v, f=factor, name=target: mil.mb.mul(x=v, y=np.full((2, 3), f, np.float32), name=name),
        )
        models.append(mil.ct.models.MLModel(str(path), skip_model_load=True))
    mil.ct.utils.make_pipeline(*models).save(str(tmp_path / "all.mlpackage"))
    model = reference.load(tmp_path / "all.mlpackage")
    np.testing.assert_array_equal(model.predict({"x": X})["y"], 10 * X)
    with pytest.raises(PackageError, match="'z' is not an input"):
        model.predict({"z": X})

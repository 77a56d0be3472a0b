"""Modes of numerics, and what is known of the Neural Engine as effects that can be switched."""

import numpy as np
import pytest
import torch

from ane_sweep import reference
from ane_sweep.bridge import effects as ane
from ane_sweep.errors import ConfigError

RNG = np.random.default_rng(19)


@pytest.fixture(scope="module")
def products(mil, tmp_path_factory):
    """A linear layer of 256 ones, a matmul, a 1 x 1 and a 3 x 3 convolution, each on the same fp16 input."""
    folder = tmp_path_factory.mktemp("products")
    x = np.zeros((1, 256), np.float16)
    ones = np.ones((2, 256), np.float16)

    def body(x):
        mb = mil.mb
        image = mb.reshape(x=x, shape=(1, 64, 2, 2))
        return (
            mb.linear(x=x, weight=ones, bias=np.float16([0, 1]), name="linear"),
            mb.matmul(x=x, y=ones, transpose_y=True, name="matmul"),
            mb.conv(x=mb.reshape(x=x, shape=(1, 256, 1, 1)), weight=ones[:, :, None, None], name="point"),
            mb.conv(x=image, weight=np.ones((1, 64, 2, 2), np.float16), name="conv"),
        )

    return mil.write(folder / "m.mlpackage", {"x": x}, body)


def test_modes_are_recorded(products):
    says = {mode: reference.load(products, numerics=mode).realised["numerics"] for mode in ("fp16", "fp32", "ane")}
    assert says["fp16"] == "fp16 storage, fp32 accumulation"
    assert says["fp32"] == "fp32 in place of the declared fp16"
    assert says["ane"] == f"fp16 storage, ANE model ({', '.join(ane.DEFAULT)})"
    with pytest.raises(ConfigError, match="unknown numerics 'fp8'; choose one of fp16, fp32, ane"):
        reference.load(products, numerics="fp8")
    with pytest.raises(ConfigError, match="unknown effect 'magic' of numerics=ane; known: accumulator"):
        reference.load(products, numerics="ane", effects=["magic"])
    with pytest.raises(ConfigError, match="only mean something with numerics=ane"):
        reference.load(products, numerics="fp16", effects=["tables"])


def test_a_sum_that_would_come_back_is_lost(products):
    """200 x 300 and then as much taken away: 0 in fp32 sums, infinite for an accumulator that ends at 32768."""
    x = np.zeros((1, 256), np.float16)
    x[:, :128], x[:, 128:] = 300, -300
    exact = reference.load(products).predict({"x": x})
    assert {name: value.reshape(-1).tolist() for name, value in exact.items()} == {
        "linear": [0, 1], "matmul": [0, 0], "point": [0, 0], "conv": [0],
    }  # fmt: skip
    found = reference.load(products, numerics="ane").predict({"x": x})
    assert all(np.isposinf(value).all() for value in found.values())
    small = reference.load(products, numerics="ane").predict({"x": x / 300})
    assert all(np.array_equal(small[name], exact[name]) for name in exact)


def test_infinite_operands_are_read_as_numbers(products):
    x = np.zeros((1, 256), np.float16)
    x[0, 0] = np.inf
    model = reference.load(products, numerics="ane", effects=["operands"])
    assert np.isposinf(model.predict({"x": x})["matmul"]).all(), "65536 is beyond fp16"
    x[0, 1] = -np.inf
    assert model.predict({"x": x})["matmul"].tolist() == [[0, 0]]
    assert np.isnan(reference.load(products).predict({"x": x})["matmul"]).all()


def test_halves_away_from_zero(products):
    x = np.zeros((1, 256), np.float16)
    x[0, :2] = 2048, 1
    assert reference.load(products).predict({"x": x})["matmul"].tolist() == [[2048, 2048]]
    away = reference.load(products, numerics="ane", effects=["half_away"]).predict({"x": x})
    assert away["matmul"].tolist() == [[2050, 2050]]


@pytest.fixture(scope="module")
def activations(mil, tmp_path_factory):
    x = np.linspace(-12, 12, 4001, dtype=np.float16)

    def body(x):
        mb = mil.mb
        made = [getattr(mb, kind)(x=x, name=kind) for kind in ("sigmoid", "tanh", "silu", "erf", "softplus")]
        return (*made, mb.gelu(x=x, mode="EXACT", name="gelu"), mb.reduce_sum(x=x, axes=[0], name="total"))

    return mil.write(tmp_path_factory.mktemp("activations") / "m.mlpackage", {"x": x}, body), x


def test_tables_are_off_by_what_was_published(activations):
    path, x = activations
    true = reference.load(path, numerics="fp32").predict({"x": x})
    found = reference.load(path, numerics="ane", effects=["tables"]).predict({"x": x})
    published = {"sigmoid": 3.4e-3, "tanh": 1.6e-3, "gelu": 6.2e-3, "silu": 1.5e-2, "erf": 8.6e-4}
    for name, most in published.items():
        off = float(np.abs(found[name].astype(np.float64) - true[name]).max())
        assert 0.6 * most < off < 1.4 * most, name
    np.testing.assert_array_equal(found["softplus"], reference.load(path).predict({"x": x})["softplus"])


def test_the_cliff_of_softplus(activations):
    path, x = activations
    found = reference.load(path, numerics="ane", effects=["softplus_cliff"]).predict({"x": x})["softplus"]
    assert not found[x > 10.4].any() and (found[(x > 0) & (x < 10.39)] > 0).all()


def test_gelu_and_narrow_sums(activations):
    path, x = activations
    found = reference.load(path, numerics="ane", effects=["gelu_tanh"]).predict({"x": x})["gelu"]
    exact = torch.nn.functional.gelu(torch.from_numpy(x).float(), approximate="tanh").half().numpy()
    np.testing.assert_array_equal(found, exact)
    ones = np.ones_like(x)
    assert reference.load(path).predict({"x": ones})["total"].tolist() == [4000]
    narrow = reference.load(path, numerics="ane", effects=["narrow_sums"]).predict({"x": ones})
    assert narrow["total"].tolist() == [2048], "one more than 2048 is 2048 in fp16"


def test_every_effect_says_where_it_is_from():
    for name, effect in ane.EFFECTS.items():
        assert effect.name == name and effect.what and effect.source
        assert effect.confidence in ("several", "one", "conflict")
    assert set(ane.DEFAULT) == {name for name, effect in ane.EFFECTS.items() if effect.confidence == "several"}


def test_fp32_keeps_what_fp16_loses(mil, tmp_path):
    x = np.float16([2048, 1])

    def body(x):
        a, b = mil.mb.split(x=x, num_splits=2, axis=0)
        return mil.mb.sub(x=mil.mb.cast(x=mil.mb.add(x=a, y=b), dtype="fp16"), y=a)

    path = mil.write(tmp_path / "m.mlpackage", {"x": x}, body)
    outputs = {
        mode: next(iter(reference.load(path, numerics=mode).predict({"x": x}).values())) for mode in ("fp16", "fp32")
    }
    assert outputs["fp16"].tolist() == [0] and outputs["fp32"].tolist() == [1]
    assert outputs["fp32"].dtype == np.float16, "what comes out has the declared type"

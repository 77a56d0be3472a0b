"""Modes of numerics, and what is known of the Neural Engine as effects that can be switched."""

import numpy as np
import pytest
import torch

from ane_sweep import reference
from ane_sweep.errors import ConfigError
from ane_sweep.mil import effects as ane

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
    with pytest.raises(ConfigError, match="need numerics=ane"):
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


@pytest.fixture(scope="module")
def sums(mil, tmp_path_factory):
    """Every op that sums products, with strides, groups and dilations: 768 products or so each where x is all alike."""
    x = np.zeros((2, 48, 4, 4), np.float16)
    rng = np.random.default_rng(3)

    def weights(*shape):
        return rng.integers(-3, 4, shape).astype(np.float16)

    def body(x):
        mb = mil.mb
        line, row = mb.reshape(x=x, shape=(2, 48, 16)), mb.reshape(x=x, shape=(2, 768))
        return (
            mb.linear(x=row, weight=np.full((3, 768), 1e-3, np.float16), name="linear"),
            mb.einsum(values=(x, mb.reshape(x=x, shape=(2, 4, 4, 48))), equation="nchw,nwhu->nchu", name="einsum"),
            mb.scaled_dot_product_attention(query=line, key=line, value=line, name="attention"),
            mb.conv(x=x, weight=weights(6, 24, 3, 2), strides=[2, 1], dilations=[1, 2], groups=2, pad_type="custom",
                    pad=[1, 0, 2, 1], bias=weights(6), name="conv"),
            mb.conv_transpose(x=x, weight=weights(48, 5, 3, 2), strides=[2, 3], dilations=[2, 1], groups=2,
                              pad_type="custom", pad=[1, 2, 0, 1], bias=weights(10), name="conv_transpose"),
            mb.conv_transpose(x=x, weight=weights(48, 5, 3, 3), strides=[2, 2], pad_type="same", name="same"),
        )  # fmt: skip

    return mil.write(tmp_path_factory.mktemp("sums") / "m.mlpackage", {"x": x}, body)


def test_every_sum_of_products_is_the_exact_one_where_nothing_is_lost(sums):
    x = np.random.default_rng(4).integers(-2, 3, (2, 48, 4, 4)).astype(np.float16)
    exact = reference.load(sums).predict({"x": x})
    for effects in (["accumulator"], ["products"], ["accumulator", "products"]):
        found = reference.load(sums, numerics="ane", effects=effects).predict({"x": x})
        for name in exact.keys() - {"attention", "linear"}:
            np.testing.assert_array_equal(found[name], exact[name])
        np.testing.assert_allclose(found["attention"], exact["attention"], atol=2e-3)
        np.testing.assert_allclose(
            found["linear"], exact["linear"], atol=768 * 2.0**-17 if "products" in effects else 1e-3
        )


def test_768_products_of_a_thousandth_by_a_thousandth_vanish(sums):
    x = np.full((2, 48, 4, 4), 1e-3, np.float16)
    plain = reference.load(sums).predict({"x": x})
    np.testing.assert_allclose(plain["linear"], 7.7e-4, rtol=0.01)
    found = reference.load(sums, numerics="ane").predict({"x": x})
    assert not found["linear"].any() and not found["einsum"].any()
    assert plain["einsum"].all() and plain["conv"].all()
    tiny = reference.load(sums, numerics="ane", effects=["accumulator"]).predict({"x": x})
    np.testing.assert_allclose(tiny["linear"], plain["linear"], rtol=2e-3)


def test_a_product_is_a_multiple_of_the_grain_halves_away_from_zero():
    from ane_sweep.reference.fixed_point import multiply_coarsely

    left = torch.tensor([[1.5, -1.5, 1.0, 1.0, 0.99951171875]]) * torch.tensor([1, 1, 1, 1.25, 1])
    right = torch.tensor([1, 1, 1, 1, 1]) * 2.0**-16
    each = [multiply_coarsely(left[:, [at]], right[[at], None]).item() * 2**16 for at in range(5)]
    assert each == [2, -2, 1, 1, 0], "exponents that add up to -17 are dropped, though the product is nearly 2^-16"


@pytest.mark.parametrize(
    ("name", "value"),
    [("linear", 5e4), ("einsum", 100), ("attention", 5e4), ("conv", 5e3), ("conv_transpose", 5e3), ("same", 5e3)],
)
def test_every_sum_of_products_can_overflow_where_plain_sums_do_not(sums, name, value):
    x = np.full((2, 48, 4, 4), value, np.float16)
    plain, found = (reference.load(sums, numerics=mode).predict({"x": x})[name] for mode in ("fp16", "ane"))
    assert (np.isfinite(plain) & ~np.isfinite(found)).any()


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


def test_the_cliff_of_logsumexp(mil, tmp_path):
    """The reporter's probe: 32 channels of one number."""
    x = np.linspace(6, 9, 64).astype(np.float16).reshape(1, 1, 64).repeat(32, axis=1)

    def body(x):
        return mil.mb.reduce_log_sum_exp(x=x, axes=[1], keep_dims=True, name="y")

    path = mil.write(tmp_path / "m.mlpackage", {"x": x}, body)
    found = reference.load(path, numerics="ane").predict({"x": x})["y"][0, 0]
    plain = reference.load(path).predict({"x": x})["y"][0, 0]
    assert not found[x[0, 0] > 7.64].any() and (found[x[0, 0] < 7.61] > 0).all()
    np.testing.assert_allclose(plain, x[0, 0] + np.log(32), rtol=1e-3)


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

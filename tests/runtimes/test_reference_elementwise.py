"""Elementwise ops against numpy, in both widths: one program a family with an output for each op."""

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ane_sweep import reference

RNG = np.random.default_rng(0)
erf = np.vectorize(math.erf)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.logaddexp(0, x)


# op -> (parameters, numpy on float64, input range)
UNARY = {
    "abs": ({}, np.abs, (-3, 3)),
    "acos": ({}, np.arccos, (-0.9, 0.9)),
    "asin": ({}, np.arcsin, (-0.9, 0.9)),
    "atan": ({}, np.arctan, (-3, 3)),
    "atanh": ({}, np.arctanh, (-0.9, 0.9)),
    "ceil": ({}, np.ceil, (-3, 3)),
    "clip": ({"alpha": -1.0, "beta": 0.5}, lambda x: np.clip(x, -1, 0.5), (-3, 3)),
    "cos": ({}, np.cos, (-3, 3)),
    "cosh": ({}, np.cosh, (-3, 3)),
    "erf": ({}, erf, (-3, 3)),
    "exp": ({}, np.exp, (-3, 3)),
    "exp2": ({}, np.exp2, (-3, 3)),
    "floor": ({}, np.floor, (-3, 3)),
    "identity": ({}, lambda x: x, (-3, 3)),
    "inverse": ({"epsilon": 0.25}, lambda x: 1 / (x + 0.25), (0.5, 3)),
    "log": ({"epsilon": 0.25}, lambda x: np.log(x + 0.25), (0.5, 3)),
    "round": ({}, np.round, (-3, 3)),
    "rsqrt": ({"epsilon": 0.25}, lambda x: 1 / np.sqrt(x + 0.25), (0.5, 3)),
    "sign": ({}, np.sign, (-3, 3)),
    "sin": ({}, np.sin, (-3, 3)),
    "sinh": ({}, np.sinh, (-3, 3)),
    "sqrt": ({}, np.sqrt, (0.5, 3)),
    "square": ({}, np.square, (-3, 3)),
    "tan": ({}, np.tan, (-1, 1)),
    "tanh": ({}, np.tanh, (-3, 3)),
    "threshold": ({"alpha": 0.5}, lambda x: np.maximum(x, 0.5), (-3, 3)),
    "clamped_relu": ({"alpha": 0.5, "beta": 1.0}, lambda x: np.minimum(np.where(x >= 0, x, 0.5 * x), 1), (-3, 3)),
    "elu": ({"alpha": 0.5}, lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)), (-3, 3)),
    "leaky_relu": ({"alpha": 0.25}, lambda x: np.where(x >= 0, x, 0.25 * x), (-3, 3)),
    "linear_activation": ({"alpha": 2.0, "beta": 0.5}, lambda x: 2 * x + 0.5, (-3, 3)),
    "relu": ({}, lambda x: np.maximum(x, 0), (-3, 3)),
    "relu6": ({}, lambda x: np.clip(x, 0, 6), (-9, 9)),
    "scaled_tanh": ({"alpha": 2.0, "beta": 0.5}, lambda x: 2 * np.tanh(0.5 * x), (-3, 3)),
    "sigmoid": ({}, sigmoid, (-3, 3)),
    "sigmoid_hard": ({"alpha": 0.25, "beta": 0.5}, lambda x: np.clip(0.25 * x + 0.5, 0, 1), (-3, 3)),
    "silu": ({}, lambda x: x * sigmoid(x), (-3, 3)),
    "softplus": ({}, softplus, (-30, 30)),
    "softsign": ({}, lambda x: x / (1 + np.abs(x)), (-3, 3)),
    "thresholded_relu": ({"alpha": 0.5}, lambda x: np.where(x >= 0.5, x, 0), (-3, 3)),
}


def close(found: np.ndarray, exact: np.ndarray, dtype: type) -> bool:
    """Within one rounding to `dtype`, and a little of fp32 error before it."""
    step = np.spacing(np.abs(exact).astype(dtype)).astype(np.float64)
    slack = 1.01 if dtype == np.float16 else 16
    return bool(np.all(np.abs(found.astype(np.float64) - exact) <= slack * step + 1e-7))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_unary(execute, mil, dtype):
    inputs = {f"x{i}": RNG.uniform(*span, (2, 37)).astype(dtype) for i, (_, _, span) in enumerate(UNARY.values())}

    def body(*values):
        return tuple(
            getattr(mil.mb, name)(x=x, **{k: dtype(v) for k, v in given.items()})
            for x, (name, (given, _, _)) in zip(values, UNARY.items())
        )

    for found, x, (name, (_, numpy, _)) in zip(execute(inputs, body), inputs.values(), UNARY.items()):
        assert found.dtype == dtype, name
        assert close(found, numpy(x.astype(np.float64)), dtype), name


BINARY = {
    "add": np.add,
    "equal": np.equal,
    "floor_div": np.floor_divide,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": np.mod,
    "mul": np.multiply,
    "not_equal": np.not_equal,
    "pow": None,
    "real_div": np.divide,
    "sub": np.subtract,
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_binary_with_broadcasting(execute, mil, dtype):
    a = (RNG.integers(-6, 7, (3, 1, 5)) / 2).astype(dtype)
    b = (RNG.choice([-3, -2, -1, 1, 2, 3], (4, 5)) / 2).astype(dtype)
    names = [name for name in BINARY if name != "pow"]

    def body(x, y):
        made = [getattr(mil.mb, name)(x=x, y=y) for name in names]
        is_flag = [BINARY[name](a, b).dtype == bool for name in names]
        return tuple(mil.mb.cast(x=v, dtype="int32") if flag else v for flag, v in zip(is_flag, made))

    for name, found in zip(names, execute({"x": a, "y": b}, body)):
        exact = BINARY[name](a.astype(np.float64), b.astype(np.float64))
        assert found.shape == (3, 4, 5)
        assert close(found, exact.astype(np.float64), dtype), name


def test_pow_select_and_logic(execute, mil):
    x = np.array([0.5, 2.0, 3.0], np.float32)
    y = np.array([2.0, -1.0, 0.5], np.float32)

    def body(x, y):
        mb = mil.mb
        larger, positive = mb.greater(x=x, y=y), mb.greater(x=y, y=np.float32(0))
        logic = [getattr(mb, f"logical_{kind}")(x=larger, y=positive) for kind in ("and", "or", "xor")]
        logic.append(mb.logical_not(x=larger))
        return (mb.pow(x=x, y=y), mb.select(cond=larger, a=x, b=y), *[mb.cast(x=v, dtype="int32") for v in logic])

    power, chosen, both, either, one, other = execute({"x": x, "y": y}, body)
    np.testing.assert_allclose(power, x**y, rtol=1e-6)
    np.testing.assert_array_equal(chosen, np.where(x > y, x, y))
    larger, positive = x > y, y > 0
    expected = (larger & positive, larger | positive, larger ^ positive, ~larger)
    for found, exact in zip((both, either, one, other), expected):
        np.testing.assert_array_equal(found, exact)


def test_integers(execute, mil):
    x = np.array([-7, -1, 7, 8], np.int32)
    y = np.array([2, 3, -2, 3], np.int32)

    def body(x, y):
        return tuple(getattr(mil.mb, name)(x=x, y=y) for name in ("floor_div", "mod", "mul", "sub"))

    for found, exact in zip(execute({"x": x, "y": y}, body), (x // y, x % y, x * y, x - y)):
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("mode", ["EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"])
def test_gelu_in_fp16_is_one_rounding_of_the_exact_value(execute, mil, mode):
    x = RNG.uniform(-4, 4, (3, 41)).astype(np.float16)
    (found,) = execute({"x": x}, lambda x: mil.mb.gelu(x=x, mode=mode))
    wide = x.astype(np.float64)
    exact = {
        "EXACT": wide * (1 + erf(wide / math.sqrt(2))) / 2,
        "TANH_APPROXIMATION": wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))) / 2,
        "SIGMOID_APPROXIMATION": wide * sigmoid(1.702 * wide),
    }[mode]
    # erf and tanh lose a few fp32 steps where the result is a difference of near-equal values
    assert np.all(np.abs(found - exact) <= 1.01 * np.spacing(np.abs(exact).astype(np.float16)) + 5e-7)


def test_per_channel_activations(execute, mil):
    x = RNG.uniform(-3, 3, (2, 3, 4, 1)).astype(np.float32)
    alpha, beta = np.array([0.5, 1, 2], np.float32), np.array([1, 2, 0.5], np.float32)
    prelu, plus = execute(
        {"x": x}, lambda x: (mil.mb.prelu(x=x, alpha=alpha), mil.mb.softplus_parametric(x=x, alpha=alpha, beta=beta))
    )
    a, b = alpha[:, None, None], beta[:, None, None]
    np.testing.assert_allclose(prelu, np.where(x >= 0, x, a * x), rtol=1e-6)
    np.testing.assert_allclose(plus, a * np.log1p(np.exp(b * x)), rtol=1e-5)


@pytest.mark.parametrize("source", [np.float16, np.float32])
def test_casts(execute, mil, source):
    x = np.array([-2.7, -0.5, 0.0, 0.4, 3.9], source)

    def body(x):
        mb = mil.mb
        flag = mb.cast(x=x, dtype="bool")
        return mb.cast(x=x, dtype="int32"), mb.cast(x=flag, dtype="fp32"), mb.cast(x=x, dtype="fp16")

    whole, flag, half = execute({"x": x}, body)
    np.testing.assert_array_equal(whole, [-2, 0, 0, 0, 3])
    np.testing.assert_array_equal(flag, [1, 1, 0, 1, 1])
    np.testing.assert_array_equal(half, x.astype(np.float16))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_chains_round_after_every_op(execute, mil, data):
    """Storage is fp16 after each op: numpy does the same, op by op, in fp32 with a rounding."""
    exact = {"add": np.add, "mul": np.multiply, "maximum": np.maximum, "sub": np.subtract}
    shapes = st.sampled_from([(2, 3, 4), (3, 4), (4,), (2, 1, 4), (1,)])
    values = [RNG.uniform(-2, 2, data.draw(shapes)).astype(np.float16) for _ in range(3)]
    plan = []
    for step in range(data.draw(st.integers(1, 8))):
        place = st.integers(0, 2 + step)
        plan.append((data.draw(st.sampled_from(sorted(exact))), data.draw(place), data.draw(place)))

    def body(*inputs):
        made = list(inputs)
        for name, left, right in plan:
            made.append(getattr(mil.mb, name)(x=made[left], y=made[right]))
        return made[-1]

    expected = list(values)
    for name, left, right in plan:
        wide = exact[name](expected[left].astype(np.float32), expected[right].astype(np.float32))
        expected.append(wide.astype(np.float16))
    (found,) = execute({f"x{i}": value for i, value in enumerate(values)}, body)
    np.testing.assert_array_equal(found, expected[-1])


def test_exact_gelu_is_right_to_the_last_bit_for_every_fp16_number_and_the_sign_of_nan_is_nan(mil, tmp_path):
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = x[np.isfinite(x) | np.isnan(x)]
    body = lambda x: (mil.mb.gelu(x=x, mode="EXACT", name="gelu"), mil.mb.sign(x=x, name="sign"))  # noqa: E731
    made = reference.load(mil.write(tmp_path / "m.mlpackage", {"x": x}, body)).predict({"x": x})
    high = torch.from_numpy(x).double()
    true = (high * 0.5 * torch.erfc(-high / 2**0.5)).half().numpy()
    np.testing.assert_array_equal(made["gelu"], true)
    np.testing.assert_array_equal(made["sign"], np.sign(x))

"""Reductions, norms, softmax and orderings against numpy in double precision."""

import numpy as np
import pytest

RNG = np.random.default_rng(2)
WIDTHS = [np.float16, np.float32]


def check(found, exact, dtype):
    assert found.dtype == dtype and found.shape == np.shape(exact)
    np.testing.assert_allclose(
        found, exact, rtol=1e-3 if dtype == np.float16 else 3e-6, atol=1e-3 if dtype == np.float16 else 1e-6
    )


REDUCTIONS = {
    "reduce_l1_norm": lambda x, a, k: np.abs(x).sum(a, keepdims=k),
    "reduce_l2_norm": lambda x, a, k: np.sqrt((x**2).sum(a, keepdims=k)),
    "reduce_log_sum": lambda x, a, k: np.log(x.sum(a, keepdims=k)),
    "reduce_log_sum_exp": lambda x, a, k: np.log(np.exp(x).sum(a, keepdims=k)),
    "reduce_max": lambda x, a, k: x.max(a, keepdims=k),
    "reduce_mean": lambda x, a, k: x.mean(a, keepdims=k),
    "reduce_min": lambda x, a, k: x.min(a, keepdims=k),
    "reduce_prod": lambda x, a, k: x.prod(a, keepdims=k),
    "reduce_sum": lambda x, a, k: x.sum(a, keepdims=k),
    "reduce_sum_square": lambda x, a, k: (x**2).sum(a, keepdims=k),
}


@pytest.mark.parametrize("dtype", WIDTHS)
def test_reductions(execute, mil, dtype):
    x = RNG.uniform(0.5, 1.5, (2, 3, 4)).astype(dtype)
    cases = [(name, axes, keep) for name in REDUCTIONS for axes, keep in (([1], False), ([0, 2], True), ([-1], True))]

    def body(x):
        return tuple(getattr(mil.mb, name)(x=x, axes=axes, keep_dims=keep) for name, axes, keep in cases)

    for found, (name, axes, keep) in zip(execute({"x": x}, body), cases):
        check(found, REDUCTIONS[name](x.astype(np.float64), tuple(axes), keep), dtype)


def test_places_of_extremes_and_order(execute, mil):
    x = RNG.permutation(24).reshape(2, 3, 4).astype(np.float32)

    def body(x):
        mb = mil.mb
        values, places = mb.topk(x=x, k=2, axis=-1)
        return (
            mb.reduce_argmax(x=x, axis=1),
            mb.reduce_argmin(x=x, axis=-1, keep_dims=True),
            mb.argsort(x=x, axis=2, ascending=True),
            mb.argsort(x=x, axis=0),
            values,
            places,
        )

    largest, smallest, up, down, values, places = execute({"x": x}, body)
    np.testing.assert_array_equal(largest, x.argmax(1))
    np.testing.assert_array_equal(smallest, x.argmin(-1)[..., None])
    np.testing.assert_array_equal(up, x.argsort(2))
    np.testing.assert_array_equal(down, (-x).argsort(0))
    np.testing.assert_array_equal(values, -np.sort(-x, -1)[..., :2])
    np.testing.assert_array_equal(places, (-x).argsort(-1)[..., :2])


@pytest.mark.parametrize("dtype", WIDTHS)
def test_softmax_on_every_axis(execute, mil, dtype):
    x = RNG.uniform(-8, 8, (2, 5, 3, 40)).astype(dtype)
    for axis, found in zip(range(4), execute({"x": x}, lambda x: tuple(mil.mb.softmax(x=x, axis=a) for a in range(4)))):
        wide = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
        exact = wide / wide.sum(axis, keepdims=True)
        assert np.all(np.abs(found - exact) <= 1.01 * np.spacing(exact.astype(dtype)) + 1e-7)


def norm(x, axes, epsilon):
    x = x.astype(np.float64)
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_norms(execute, mil, dtype):
    x = RNG.standard_normal((2, 6, 5, 4)).astype(dtype)
    gamma, beta = RNG.uniform(0.5, 2, 4).astype(dtype), RNG.uniform(-1, 1, 4).astype(dtype)
    per_channel = {name: RNG.uniform(0.5, 2, 6).astype(dtype) for name in ("gamma", "beta", "mean", "variance")}
    epsilon = dtype(1e-3)

    def body(x):
        mb = mil.mb
        affine = {name: per_channel[name] for name in ("gamma", "beta")}
        return (
            mb.layer_norm(x=x, axes=[-1], gamma=gamma, beta=beta, epsilon=epsilon),
            mb.layer_norm(x=x, axes=[1], gamma=per_channel["gamma"], beta=per_channel["beta"], epsilon=epsilon),
            mb.layer_norm(x=x, axes=[2, 3], epsilon=epsilon),
            mb.instance_norm(x=x, epsilon=epsilon, **affine),
            mb.batch_norm(x=x, epsilon=epsilon, **per_channel),
            mb.l2_norm(x=x, epsilon=epsilon),
        )

    found = execute({"x": x}, body)
    e, wide = float(epsilon), x.astype(np.float64)
    g, b, m, v = (per_channel[name].astype(np.float64)[:, None, None] for name in ("gamma", "beta", "mean", "variance"))
    expected = (
        norm(x, -1, e) * gamma.astype(np.float64) + beta,
        norm(x, 1, e) * g + b,
        norm(x, (2, 3), e),
        norm(x, (2, 3), e) * g + b,
        (wide - m) / np.sqrt(v + e) * g + b,
        wide / np.sqrt((wide**2).sum((1, 2, 3), keepdims=True) + e),
    )
    for one, exact in zip(found, expected):
        check(one, exact, dtype)


def test_cumulative_sums(execute, mil):
    x = RNG.integers(-5, 5, (3, 4)).astype(np.float32)

    def body(x):
        return tuple(mil.mb.cumsum(x=x, axis=1, exclusive=e, reverse=r) for e in (False, True) for r in (False, True))

    plain, backward, before, after = execute({"x": x}, body)
    turned = np.cumsum(x[:, ::-1], 1)[:, ::-1]
    np.testing.assert_array_equal(plain, np.cumsum(x, 1))
    np.testing.assert_array_equal(backward, turned)
    np.testing.assert_array_equal(before, np.cumsum(x, 1) - x)
    np.testing.assert_array_equal(after, turned - x)

"""Random graphs of random ops: MIL builder -> package -> runtime, against coremltools' own numpy inference.

The same recipe is built twice: on constants, where coremltools computes every value in numpy while building, and on an
input, which only the runtime can compute.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

UNARY = (
    "abs", "atan", "ceil", "cos", "erf", "exp", "floor", "relu", "round", "sigmoid", "sign", "sin", "sinh", "square", "tan",
    "tanh", "softsign", "relu6", "cosh", "exp2",
)  # fmt: skip
SUMS = (
    "reduce_sum",
    "reduce_mean",
    "reduce_max",
    "reduce_min",
    "reduce_l1_norm",
    "reduce_l2_norm",
    "reduce_sum_square",
)
BINARY = ("add", "sub", "mul", "maximum", "minimum")
# what magnifies a difference of the last bit without limit is kept to small numbers by a tanh in front
STEEP = {"exp", "sinh", "cosh", "exp2", "square", "tan", "sin", "cos", "reduce_sum_square"}
JUMPS = {"ceil", "floor", "round", "sign"}


def step(mb, x, other, kind, numbers):
    """One op on x, with its parameters taken from `numbers`."""
    rank = x.rank
    if kind in STEEP:
        x = mb.tanh(x=x)
    if kind in JUMPS:  # half-way values would jump by the last bit of what came before
        x = mb.mul(x=mb.round(x=mb.mul(x=x, y=np.float32(8))), y=np.float32(0.3))
    if kind in UNARY:
        return getattr(mb, kind)(x=x)
    if kind in BINARY:
        return getattr(mb, kind)(x=x, y=other if other is not None else np.float32(0.75))
    if kind in SUMS:
        return getattr(mb, kind)(x=x, axes=[numbers[0] % rank], keep_dims=True)
    if kind == "transpose":
        return mb.transpose(x=x, perm=list(np.random.default_rng(numbers[0]).permutation(rank)))
    if kind == "reverse":
        return mb.reverse(x=x, axes=[numbers[0] % rank])
    if kind == "cumsum":
        return mb.cumsum(x=x, axis=numbers[0] % rank, reverse=bool(numbers[1] % 2))
    if kind == "softmax":
        return mb.softmax(x=x, axis=numbers[0] % rank)
    if kind == "tile":
        return mb.tile(x=x, reps=[1 + (axis == numbers[0] % rank and x.shape[axis] < 4) for axis in range(rank)])
    if kind == "pad":
        return mb.pad(x=x, pad=[numbers[0] % 2, numbers[1] % 2], constant_val=np.float32(0.5))
    if kind == "concat":
        return mb.concat(values=(x, x), axis=numbers[0] % rank) if max(x.shape) < 6 else x
    if kind == "slice_by_index":
        start = [numbers[0] % size for size in x.shape]
        return mb.slice_by_index(x=x, begin=start, end=list(x.shape), stride=[1 + numbers[1] % 2] * rank)
    if kind == "gather":
        axis = numbers[0] % rank
        return mb.gather(x=x, indices=np.int32([numbers[1] % x.shape[axis], 0]), axis=axis)
    if kind == "reshape":
        return mb.reshape(x=x, shape=[-1, *x.shape[:-1]])
    if kind == "band_part":
        return mb.band_part(x=x, lower=numbers[0] % 3 - 1, upper=numbers[1] % 3 - 1)
    return mb.clip(x=x, alpha=np.float32(-0.5), beta=np.float32(0.8))


MOVES = ("transpose", "reverse", "cumsum", "softmax", "tile", "pad", "concat", "slice_by_index", "gather", "reshape")
RECIPE = st.lists(
    st.tuples(
        st.sampled_from([*UNARY, *BINARY, *SUMS, *MOVES, "band_part", "clip"]), st.tuples(*[st.integers(0, 9)] * 2)
    ),
    min_size=1,
    max_size=9,
)


def graph(mb, x, recipe):
    kept = x
    for kind, numbers in recipe:
        other = kept if kind in BINARY and _fits(kept.shape, x.shape) else None
        kept, x = x, step(mb, x, other, kind, numbers)
    return x


def _fits(a, b):
    return len(a) == len(b) and all(one in (1, two) for one, two in zip(a, b))


def check(mil, tmp_path, recipe, shape, dtype):
    from ane_sweep import reference

    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    exact = []

    def on_constants(dummy):
        exact.append(graph(mil.mb, mil.mb.const(val=x), recipe).val)
        return mil.mb.identity(x=dummy)

    mil.mb.program(input_specs=[mil.mb.TensorSpec((1,), mil.dtypes[np.float32])])(on_constants)
    assert exact[0] is not None, "coremltools infers no value for one of these ops"
    path = mil.write(tmp_path / "m.mlpackage", {"x": x}, lambda x: mil.mb.identity(x=graph(mil.mb, x, recipe)))
    (found,) = reference.load(path).predict({"x": x}).values()
    assert found.shape == np.atleast_1d(exact[0]).shape
    peak = max(1.0, float(np.abs(exact[0]).max(initial=0)))
    np.testing.assert_allclose(found, np.atleast_1d(exact[0]), atol=2e-5 * peak, rtol=2e-5)


HOW = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}


@settings(max_examples=8, derandomize=True, **HOW)
@given(recipe=RECIPE, shape=st.sampled_from([(2, 3), (3, 2, 4), (1, 4, 2, 3)]))
def test_random_graphs(mil, tmp_path, recipe, shape):
    check(mil, tmp_path, recipe, shape, np.float32)


@pytest.mark.slow
@settings(max_examples=300, **HOW)
@given(recipe=RECIPE, shape=st.sampled_from([(2, 3), (3, 2, 4), (1, 4, 2, 3)]))
def test_many_random_graphs(mil, tmp_path, recipe, shape):
    check(mil, tmp_path, recipe, shape, np.float32)

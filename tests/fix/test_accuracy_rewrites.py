"""The rewrites for accuracy in fp16: proven over random shapes, wrong before and right after on a probe net under the
Neural Engine's arithmetic, look-alikes left alone.
"""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from fix.checks import check_rewrite, check_untouched, count_ops, save
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("coremltools")
from coremltools.converters.mil import Builder as mb

from ane_sweep import reference

FEW = settings(max_examples=6, deadline=None)
SHAPES = st.lists(st.integers(1, 4), min_size=0, max_size=2).map(lambda sizes: [*sizes, 24, 32])
HALF = np.float16


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield lambda: Path(tempfile.mkdtemp(dir=made)) / "m.mlpackage"


def worst_error(path, **values):
    """Return the largest error under the Neural Engine's arithmetic, relative to the largest output in fp32."""
    (exact,) = reference.load(path, numerics="fp32").predict(values).values()
    (found,) = reference.load(path, numerics="ane").predict(values).values()
    gap = np.abs(exact.astype(np.float64) - found.astype(np.float64))
    return float(np.nan_to_num(gap, nan=np.inf).max() / np.abs(exact).max())


def check_probe(name, path, wrong=0.1, right=0.01, **values):
    """Check that a probe net goes wrong before a rewrite and is right after it."""
    assert worst_error(path, **values) > wrong
    made = check_rewrite(name, path, places=1)
    assert worst_error(made, **values) < right
    return made


def dominant(shape=(1, 8), size=24.0):
    """Return an input in which one element is far above the others."""
    x = np.zeros(shape, HALF)
    x[..., 3] = size
    return x


# log_softmax


def log_softmax(x):
    return mb.log(x=mb.softmax(x=x, axis=-1))


def unshifted(x):
    return mb.sub(x=x, y=mb.log(x=mb.reduce_sum(x=mb.exp(x=x), axes=[-1], keep_dims=True)))


def widened(x):
    return mb.sub(x=x, y=mb.expand_dims(x=mb.reduce_log_sum_exp(x=x, axes=[-1], keep_dims=False), axes=[-1]))


@FEW
@given(shape=SHAPES, body=st.sampled_from([log_softmax, unshifted, widened]))
def test_log_softmax_is_shifted(folder, shape, body):
    made = check_rewrite("log_softmax_shifted", save(folder(), body, x=("fp16", shape)), places=1)
    assert "softmax" not in count_ops(made) and count_ops(made)["log"] == 1


@pytest.mark.parametrize("body", [log_softmax, unshifted, widened])
def test_a_class_that_dominates(folder, body):
    path = save(folder(), lambda x: body(mb.mul(x=x, y=HALF(1))), x=("fp16", (8, 8)))
    check_probe("log_softmax_shifted", path, x=dominant((8, 8)))


def test_the_logarithm_of_a_softmax_with_further_readers_stays(folder):
    def body(x):
        share = mb.softmax(x=x, axis=0)
        return mb.log(x=share, name="logarithm"), mb.mul(x=share, y=HALF(2), name="double")

    check_untouched("log_softmax_shifted", save(folder(), body, x=("fp16", (32, 8))))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: mb.log(x=mb.softmax(x=x, axis=-1), epsilon=HALF(1e-3)),
        lambda x: mb.sub(x=mb.relu(x=x), y=mb.reduce_log_sum_exp(x=x, axes=[-1], keep_dims=True)),
        lambda x: mb.sub(x=mb.reduce_log_sum_exp(x=x, axes=[-1], keep_dims=True), y=x),
        lambda x: mb.sub(x=x, y=mb.reduce_log_sum_exp(x=x, axes=[0], keep_dims=False)),
    ],
)
def test_look_alikes_of_log_softmax_stay(folder, body):
    check_untouched("log_softmax_shifted", save(folder(), body, x=("fp16", (8, 8))))


# logsumexp and logcumsumexp


@FEW
@given(shape=SHAPES, axis=st.integers(-2, -1), keep=st.booleans(), is_written_out=st.booleans())
def test_logsumexp_is_shifted(folder, shape, axis, keep, is_written_out):
    def body(x):
        if is_written_out:
            return mb.log(x=mb.reduce_sum(x=mb.exp(x=x), axes=[axis], keep_dims=keep))
        return mb.reduce_log_sum_exp(x=x, axes=[axis], keep_dims=keep)

    made = check_rewrite("logsumexp_shifted", save(folder(), body, x=("fp16", shape)), places=1)
    assert count_ops(made).get("squeeze", 0) == (not keep)


def test_logsumexp_of_32_channels_beyond_its_cliff_and_of_masked_rows(folder):
    path = save(folder(), lambda x: mb.reduce_log_sum_exp(x=x, axes=[1], keep_dims=True), x=("fp16", (1, 32, 40)))
    x = np.tile(np.linspace(6, 20, 40).astype(HALF), (1, 32, 1))
    made = check_probe("logsumexp_shifted", path, x=x)
    x[..., 0] = -np.inf
    (found,) = reference.load(made).predict({"x": x}).values()
    assert found[0, 0, 0] == -np.inf and np.isfinite(found[0, 0, 1:]).all()


def test_logsumexp_in_fp32_and_other_sums_stay(folder):
    check_untouched("logsumexp_shifted", save(folder(), lambda x: mb.reduce_log_sum_exp(x=x), x=("fp32", (4, 8))))

    def body(x):
        return mb.log(x=mb.reduce_mean(x=mb.exp(x=x), axes=[-1])), mb.log(x=mb.reduce_sum(x=mb.exp2(x=x), axes=[-1]))

    check_untouched("logsumexp_shifted", save(folder(), body, x=("fp16", (4, 8))))


@FEW
@given(rows=st.integers(1, 3), count=st.integers(9, 40), is_first=st.booleans())
def test_logcumsumexp_is_made_by_doubling(folder, rows, count, is_first):
    shape = [count, 8 * rows] if is_first else [8 * rows, count]

    def body(x):
        return mb.log(x=mb.cumsum(x=mb.exp(x=x), axis=0 if is_first else -1))

    made = check_rewrite("logcumsumexp_shifted", save(folder(), body, x=("fp16", shape)), places=1)
    assert count_ops(made)["softplus"] == (count - 1).bit_length() and "cumsum" not in count_ops(made)


def test_logcumsumexp_of_small_numbers_before_large_ones(folder):
    path = save(folder(), lambda x: mb.log(x=mb.cumsum(x=mb.exp(x=x), axis=-1)), x=("fp16", (4, 16)))
    x = np.tile(np.array([1, 5, 10, 12, 15, 20, 50, -20] * 2, HALF), (4, 1))
    check_probe("logcumsumexp_shifted", path, x=x)


@pytest.mark.parametrize("given", [{"reverse": True}, {"exclusive": True}])
def test_other_running_sums_stay(folder, given):
    path = save(folder(), lambda x: mb.log(x=mb.cumsum(x=mb.exp(x=x), axis=-1, **given)), x=("fp16", (4, 16)))
    check_untouched("logcumsumexp_shifted", path)


# log(1 + exp(x))


@FEW
@given(shape=SHAPES, form=st.integers(0, 2))
def test_a_softplus_that_is_written_out(folder, shape, form):
    def body(x):
        grown = mb.exp(x=x)
        if form == 2:
            return mb.log(x=grown, epsilon=HALF(1))
        return mb.log(x=mb.add(x=grown, y=HALF(1)) if form else mb.add(x=HALF(1), y=grown))

    path = save(folder(), body, x=("fp16", shape))
    check_rewrite("log1p_exp_shifted", path, places=1)


def test_a_softplus_beyond_the_largest_exponential(folder):
    path = save(folder(), lambda x: mb.log(x=mb.add(x=mb.exp(x=x), y=HALF(1))), x=("fp16", (8, 64)))
    check_probe("log1p_exp_shifted", path, x=np.linspace(-30, 30, 512).astype(HALF).reshape(8, 64))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: mb.log(x=mb.add(x=mb.exp(x=x), y=HALF(2))),
        lambda x: mb.log(x=mb.add(x=mb.exp(x=x), y=HALF(1)), epsilon=HALF(1)),
        lambda x: mb.log(x=mb.add(x=mb.exp(x=x), y=np.ones((3, 1, 8), HALF))),
        lambda x: mb.log(x=mb.mul(x=mb.exp(x=x), y=HALF(1))),
    ],
)
def test_other_logarithms_stay(folder, body):
    check_untouched("log1p_exp_shifted", save(folder(), body, x=("fp16", (4, 8))))


# sums and norms


@FEW
@given(count=st.integers(1500, 3000), is_division=st.booleans(), keep=st.booleans())
def test_a_sum_over_a_long_axis(folder, count, is_division, keep):
    def body(x):
        total = mb.reduce_sum(x=x, axes=[1], keep_dims=keep)
        return mb.real_div(x=total, y=HALF(count)) if is_division else mb.mul(x=HALF(1 / count), y=total)

    path = save(folder(), body, x=("fp16", (16, count)))
    made = check_probe("sum_to_mean", path, x=np.full((16, count), 100, HALF))
    assert count_ops(made) == {"reduce_mean": 1}


@pytest.mark.parametrize(
    "body",
    [
        lambda x: mb.mul(x=mb.reduce_sum(x=x, axes=[1]), y=HALF(1 / 1000)),
        lambda x: mb.real_div(x=HALF(2000), y=mb.reduce_sum(x=x, axes=[1])),
        lambda x: mb.mul(x=mb.reduce_sum(x=x, axes=[1]), y=np.full((3, 1), 1 / 2000, HALF)),
        lambda x: mb.mul(x=mb.reduce_sum(x=x, axes=[0]), y=HALF(1 / 2000)),
    ],
)
def test_other_factors_of_a_sum_stay(folder, body):
    check_untouched("sum_to_mean", save(folder(), body, x=("fp16", (8, 2000))))


def rms_norm(x, axis=-1, form=0, epsilon=1e-5):
    square = [mb.square(x=x), mb.mul(x=x, y=x), mb.pow(x=x, y=HALF(2))][form % 3]
    mean = mb.add(x=mb.reduce_mean(x=square, axes=[axis], keep_dims=True), y=HALF(epsilon))
    if form % 2:
        return mb.real_div(x=x, y=mb.sqrt(x=mean))
    root = mb.rsqrt(x=mean) if form < 3 else mb.pow(x=mean, y=HALF(-0.5))
    return mb.mul(x=root, y=x)


@FEW
@given(shape=SHAPES, axis=st.integers(-2, -1), form=st.integers(0, 5), epsilon=st.sampled_from([1e-6, 1e-5, 1e-3]))
def test_rms_norm_is_scaled(folder, shape, axis, form, epsilon):
    path = save(folder(), lambda x: rms_norm(x, axis, form, epsilon), x=("fp16", shape))
    check_rewrite("rms_norm_scaled", path, places=1)


def test_activations_beyond_256_and_rows_of_small_numbers_and_zeros(folder):
    path = save(folder(), rms_norm, x=("fp16", (4, 512)))
    x = np.random.default_rng(0).standard_normal((4, 512))
    x *= np.array([[10000], [500], [2e-3], [0]])
    made = check_probe("rms_norm_scaled", path, wrong=0.1, right=0.01, x=x.astype(HALF))
    exact, found = (reference.load(one, numerics="fp32").predict({"x": x.astype(HALF)}) for one in (path, made))
    for one, other in zip(exact.values(), found.values()):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_variance_that_is_written_out(folder):
    def body(x):
        return rms_norm(mb.sub(x=x, y=mb.reduce_mean(x=x, axes=[-1], keep_dims=True)))

    path = save(folder(), body, x=("fp16", (4, 64)))
    check_probe("rms_norm_scaled", path, x=(np.random.default_rng(0).standard_normal((4, 64)) * 900).astype(HALF))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: mb.mul(x=x, y=mb.rsqrt(x=mb.reduce_mean(x=mb.square(x=mb.relu(x=x)), axes=[-1], keep_dims=True))),
        lambda x: mb.mul(x=x, y=mb.rsqrt(x=mb.reduce_mean(x=mb.square(x=x), axes=[-1], keep_dims=False))),
        lambda x: mb.mul(x=x, y=mb.rsqrt(x=mb.reduce_mean(x=mb.mul(x=x, y=HALF(2)), axes=[-1], keep_dims=True))),
        lambda x: mb.mul(x=x, y=mb.sqrt(x=mb.reduce_mean(x=mb.square(x=x), axes=[-1], keep_dims=True))),
        lambda x: mb.real_div(x=mb.sqrt(x=mb.reduce_mean(x=mb.square(x=x), axes=[-1], keep_dims=True)), y=x),
    ],
)
def test_other_norms_stay(folder, body):
    check_untouched("rms_norm_scaled", save(folder(), body, x=("fp16", (8, 8))))
    fp32 = save(folder(), lambda x: mb.mul(x=x, y=mb.rsqrt(x=mb.square(x=x))), x=("fp32", (8, 8)))
    check_untouched("rms_norm_scaled", fp32)


# masks


def test_a_mask_of_bert(folder):
    """(1 - mask) * finfo(fp32).min, which is -infinity in fp16: 0 * -infinity is NaN for every token that is not masked."""

    def body(x, other, mask):
        bias = mb.mul(x=mb.sub(x=HALF(1), y=mask), y=HALF(-np.inf))
        return tuple(mb.softmax(x=mb.add(x=one, y=bias), axis=-1) for one in (x, other))

    inputs = {"x": ("fp16", (1, 2, 8, 8)), "other": ("fp16", (1, 2, 8, 8)), "mask": ("fp16", (1, 1, 1, 8))}
    path = save(folder(), body, **inputs)
    random = np.random.default_rng(0)
    values = {name: random.standard_normal(shape).astype(HALF) for name, (_, shape) in inputs.items()}
    values["mask"] = np.array([1, 1, 1, 1, 1, 0, 0, 0], HALF).reshape(1, 1, 1, 8)
    assert all(np.isnan(found).all() for found in reference.load(path).predict(values).values())
    made = check_rewrite("masks_finite", path, places=1)
    for name, found in zip(("x", "other"), reference.load(made, numerics="ane").predict(values).values()):
        scores = np.exp(values[name].astype(np.float64)) * values["mask"]
        np.testing.assert_allclose(found, scores / scores.sum(-1, keepdims=True), atol=2e-3)


@FEW
@given(rows=st.integers(8, 12), is_first=st.booleans(), width=st.integers(8, 40))
def test_rows_that_are_masked_whole(folder, rows, is_first, width):
    def body(x, keep):
        masked = mb.select(cond=keep, a=x, b=HALF(-np.inf)) if is_first else mb.select(cond=keep, a=HALF(-np.inf), b=x)
        return mb.softmax(x=masked, axis=-1)

    path = save(folder(), body, x=("fp16", (1, rows, width)), keep=("bool", (1, rows, width)))
    check_rewrite("masks_finite", path, places=1)


def test_a_constant_mask_of_left_padding(folder):
    mask = np.triu(np.full((16, 16), -np.inf, HALF), 1)
    mask[:3] = -np.inf
    path = save(folder(), lambda x: mb.softmax(x=mb.add(x=x, y=mask), axis=-1), x=("fp16", (2, 16, 16)))
    check_rewrite("masks_finite", path, places=1)


def test_masks_that_make_no_nan_or_are_read_by_others_stay(folder):
    causal = np.triu(np.full((16, 16), -np.inf, HALF), 1)
    check_untouched(
        "masks_finite", save(folder(), lambda x: mb.softmax(x=mb.add(x=x, y=causal), axis=-1), x=("fp16", (16, 16)))
    )

    def body(x, keep):
        return mb.reduce_max(x=mb.select(cond=keep, a=x, b=HALF(-np.inf)), axes=[-1])

    check_untouched("masks_finite", save(folder(), body, x=("fp16", (8, 8)), keep=("bool", (8, 8))))

    def mended(x, keep):
        share = mb.softmax(x=mb.select(cond=keep, a=x, b=HALF(-np.inf)), axis=-1)
        return mb.select(cond=mb.not_equal(x=share, y=share), a=HALF(0), b=share)

    check_untouched("masks_finite", save(folder(), mended, x=("fp16", (8, 8)), keep=("bool", (8, 8))))

    def output(x, keep):
        masked = mb.select(cond=keep, a=x, b=HALF(-np.inf), name="masked")
        return masked, mb.softmax(x=masked, axis=-1, name="share")

    check_untouched("masks_finite", save(folder(), output, x=("fp16", (8, 8)), keep=("bool", (8, 8))))


def test_a_nan_sentinel_is_named_and_left(folder):
    from ane_sweep.fix import driver

    def body(x):
        return mb.select(cond=mb.not_equal(x=x, y=x), a=HALF(0), b=x)

    report = driver.fix(save(folder(), body, x=("fp16", (4, 8))), only=("nan_sentinels",))
    (trial,) = report.trials
    assert trial.status == "refused" and "pass the sentinel as an input of its own" in trial.reason
    other = save(folder(), lambda x: mb.cast(x=mb.not_equal(x=x, y=HALF(0)), dtype="fp16"), x=("fp16", (4, 8)))
    assert driver.fix(other, only=("nan_sentinels",)).trials == []


# gelu


def erf_gelu(x, order):
    inner = mb.mul(x=x, y=HALF(2**-0.5)) if order % 2 else mb.real_div(x=x, y=HALF(2**0.5))
    total = mb.add(x=mb.erf(x=inner), y=HALF(1))
    if order < 2:
        return mb.mul(x=mb.mul(x=x, y=HALF(0.5)), y=total)
    if order < 4:
        return mb.mul(x=x, y=mb.mul(x=HALF(0.5), y=total))
    return mb.mul(x=mb.mul(x=total, y=x), y=HALF(0.5))


def tanh_gelu(x, order):
    if order % 2:
        cube = mb.mul(x=mb.pow(x=x, y=HALF(3)), y=HALF(0.044715))
        inner = mb.mul(x=mb.add(x=x, y=cube), y=HALF(0.7978845608))
    else:
        square = mb.mul(x=mb.mul(x=x, y=HALF(0.044715)), y=x)
        inner = mb.mul(x=mb.mul(x=x, y=HALF(0.7978845608)), y=mb.add(x=square, y=HALF(1)))
    return mb.mul(x=mb.mul(x=x, y=HALF(0.5)), y=mb.add(x=HALF(1), y=mb.tanh(x=inner)))


def quick_gelu(x, _):
    return mb.mul(x=x, y=mb.sigmoid(x=mb.mul(x=x, y=HALF(1.702))))


@settings(max_examples=12, deadline=None)
@given(shape=SHAPES, form=st.sampled_from([erf_gelu, tanh_gelu, quick_gelu]), order=st.integers(0, 5), data=st.data())
def test_a_gelu_that_is_written_out(folder, shape, form, order, data):
    def body(x):
        if data.draw(st.booleans()):  # x itself is a sum or a product
            x = mb.add(x=x, y=HALF(0.25)) if order % 2 else mb.mul(x=x, y=HALF(0.5))
        return form(x, order)

    made = check_rewrite("gelu_fused", save(folder(), body, x=("fp16", shape)), places=1)
    assert count_ops(made)["gelu"] == 1 and len(count_ops(made)) <= 2


@pytest.mark.parametrize(
    "body",
    [
        lambda x: mb.mul(
            x=mb.relu(x=x), y=mb.mul(x=HALF(0.5), y=mb.add(x=mb.erf(x=mb.mul(x=x, y=HALF(0.7071))), y=HALF(1)))
        ),
        lambda x: mb.mul(x=x, y=mb.mul(x=HALF(0.4), y=mb.add(x=mb.erf(x=mb.mul(x=x, y=HALF(0.7071))), y=HALF(1)))),
        lambda x: mb.mul(x=x, y=mb.mul(x=HALF(0.5), y=mb.add(x=mb.erf(x=mb.mul(x=x, y=HALF(0.8))), y=HALF(1)))),
        lambda x: mb.mul(x=x, y=mb.sigmoid(x=mb.mul(x=x, y=HALF(1.5)))),
        lambda x: mb.mul(x=mb.exp(x=x), y=mb.sigmoid(x=mb.mul(x=x, y=HALF(1.702)))),
        lambda x: (s := mb.sigmoid(x=mb.mul(x=x, y=HALF(1.702))), mb.mul(x=x, y=s)),
    ],
)
def test_other_products_with_erf_and_sigmoid_stay(folder, body):
    check_untouched("gelu_fused", save(folder(), body, x=("fp16", (8, 16))))

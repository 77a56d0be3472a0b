"""Products with sums against numpy in double precision; and that fp16 programs accumulate in fp32."""

import math

import numpy as np
import pytest
import torch

from ane_sweep.reference import constants, linear
from ane_sweep.reference.constants import hold, view_mapped

RNG = np.random.default_rng(1)
WIDTHS = [np.float16, np.float32]


def normal(dtype, *shape):
    return RNG.standard_normal(shape).astype(dtype)


def check(found, exact, dtype, terms: int):
    """One rounding of the result, beside fp32 error that grows with the number of terms."""
    assert found.dtype == dtype and found.shape == exact.shape
    rounding = np.spacing(np.abs(exact).astype(dtype)).astype(np.float64)
    assert np.all(np.abs(found - exact) <= 1.01 * rounding + terms * 2e-7 * max(1.0, np.abs(exact).max()))


@pytest.mark.parametrize("dtype", WIDTHS)
def test_linear_and_matmul(execute, mil, dtype):
    x, weight, bias = normal(dtype, 2, 5, 24), normal(dtype, 7, 24), normal(dtype, 7)
    y = normal(dtype, 2, 24, 6)

    def body(x, y):
        mb = mil.mb
        flipped = mb.transpose(x=y, perm=(0, 2, 1))
        turned = mb.transpose(x=x, perm=(0, 2, 1))
        return (
            mb.linear(x=x, weight=weight, bias=bias),
            mb.linear(x=x, weight=weight),
            mb.matmul(x=x, y=y),
            mb.matmul(x=x, y=flipped, transpose_y=True),
            mb.matmul(x=turned, y=y, transpose_x=True),
            mb.matmul(x=x, y=weight.T.copy()),
            mb.matmul(x=x, y=weight, transpose_y=True),
        )

    found = execute({"x": x, "y": y}, body)
    wx, wy, ww, wb = (value.astype(np.float64) for value in (x, y, weight, bias))
    plain = wx @ ww.T
    for one, exact in zip(found, (plain + wb, plain, wx @ wy, wx @ wy, wx @ wy, plain, plain)):
        check(one, exact, dtype, 24)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("dtype", WIDTHS)
def test_einsum_of_split_attention(execute, mil, dtype, heads):
    keys, queries = normal(dtype, 2, 5, heads, 6), normal(dtype, 2, 6, heads, 9)
    equation = "bkhc,bchq->bkhq"
    (found,) = execute({"k": keys, "q": queries}, lambda k, q: mil.mb.einsum(values=(k, q), equation=equation))
    check(found, np.einsum(equation, keys.astype(np.float64), queries.astype(np.float64)), dtype, 9)


def conv_by_hand(x, weight, bias, strides, pad, dilations, groups):
    """2-D convolution in double precision, one output position at a time."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), pad[:2], pad[2:]))
    weight = weight.astype(np.float64)
    out_c, in_c, kh, kw = weight.shape
    span_h, span_w = (kh - 1) * dilations[0] + 1, (kw - 1) * dilations[1] + 1
    height, width = (x.shape[2] - span_h) // strides[0] + 1, (x.shape[3] - span_w) // strides[1] + 1
    result = np.zeros((x.shape[0], out_c, height, width))
    per_group = out_c // groups
    for c in range(out_c):
        channels = slice(c // per_group * in_c, (c // per_group + 1) * in_c)
        for i in range(height):
            for j in range(width):
                top, left = i * strides[0], j * strides[1]
                patch = x[:, channels, top : top + span_h : dilations[0], left : left + span_w : dilations[1]]
                result[:, c, i, j] = (patch * weight[c]).sum((1, 2, 3)) + bias[c]
    return result


@pytest.mark.parametrize("dtype", WIDTHS)
def test_convolutions(execute, mil, dtype):
    x = normal(dtype, 2, 4, 1, 11)
    square = normal(dtype, 2, 4, 9, 8)
    point, bias, kernel = normal(dtype, 6, 4, 1, 1), normal(dtype, 6), normal(dtype, 6, 2, 3, 2)

    def body(x, square):
        mb = mil.mb
        custom = {"strides": [2, 1], "dilations": [1, 2], "pad_type": "custom", "pad": [1, 0, 2, 1], "groups": 2}
        return (
            mb.conv(x=x, weight=point, bias=bias),
            mb.conv(x=x, weight=point),
            mb.conv(x=square, weight=kernel, bias=bias, **custom),
            mb.conv(x=square, weight=kernel, bias=bias, pad_type="same", groups=2),
            mb.conv(x=square, weight=kernel, bias=bias, pad_type="same_lower", groups=2),
        )

    found = execute({"x": x, "square": square}, body)
    none = np.zeros(6)
    expected = [
        conv_by_hand(x, point, bias.astype(np.float64), (1, 1), (0, 0, 0, 0), (1, 1), 1),
        conv_by_hand(x, point, none, (1, 1), (0, 0, 0, 0), (1, 1), 1),
        conv_by_hand(square, kernel, bias.astype(np.float64), (2, 1), (1, 0, 2, 1), (1, 2), 2),
        conv_by_hand(square, kernel, bias.astype(np.float64), (1, 1), (1, 1, 0, 1), (1, 1), 2),
        conv_by_hand(square, kernel, bias.astype(np.float64), (1, 1), (1, 1, 1, 0), (1, 1), 2),
    ]
    for one, exact in zip(found, expected):
        check(one, exact, dtype, 24)


def test_transposed_convolution_undoes_the_shape(execute, mil):
    x, weight = normal(np.float32, 1, 3, 4, 4), normal(np.float32, 3, 2, 2, 2)
    (found,) = execute({"x": x}, lambda x: mil.mb.conv_transpose(x=x, weight=weight, strides=[2, 2]))
    exact = np.einsum("ncij,cokl->noikjl", x.astype(np.float64), weight).reshape(1, 2, 8, 8)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_attention(execute, mil, dtype):
    q, k, v = (normal(dtype, 1, 2, size, 8) for size in (5, 7, 7))
    mask = np.where(RNG.random((5, 7)) < 0.7, 0, -1e4).astype(dtype)
    mask[:, 0] = 0

    def body(q, k, v, m):
        mb = mil.mb
        seen = mb.greater(x=m, y=dtype(-1))
        return (
            mb.scaled_dot_product_attention(query=q, key=k, value=v),
            mb.scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=m),
            mb.scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=seen),
        )

    found = execute({"q": q, "k": k, "v": v, "m": mask}, body)
    scores = np.einsum("bhqc,bhkc->bhqk", q.astype(np.float64), k.astype(np.float64)) / math.sqrt(8)
    for one, added in zip(found, (0, mask.astype(np.float64), mask.astype(np.float64))):
        weights = np.exp(scores + added)
        weights /= weights.sum(-1, keepdims=True)
        check(one, weights @ v.astype(np.float64), dtype, 8)


def test_pools(execute, mil):
    x = normal(np.float32, 1, 2, 4, 6)

    def body(x):
        given = {"kernel_sizes": [2, 2], "strides": [2, 2], "pad_type": "valid"}
        return mil.mb.max_pool(x=x, **given), mil.mb.avg_pool(x=x, **given)

    largest, mean = execute({"x": x}, body)
    tiles = x.reshape(1, 2, 2, 2, 3, 2)
    np.testing.assert_array_equal(largest, tiles.max((3, 5)))
    np.testing.assert_allclose(mean, tiles.mean((3, 5)), rtol=1e-6)


@pytest.mark.parametrize("kind", ["linear", "matmul", "einsum", "conv", "reduce_sum", "reduce_mean", "cumsum"])
def test_fp16_sums_are_accumulated_in_fp32(execute, mil, kind):
    """2048 and 4095 ones: 6143, which rounds to 6144. In fp16, 2048 + 1 is 2048, so a narrow sum stays far below."""
    x = np.ones((1, 4096), np.float16)
    x[0, 0] = 2048
    ones = np.ones((16, 4096), np.float16)

    def body(x):
        mb = mil.mb
        deep = mb.reshape(x=x, shape=(1, 4096, 1, 1))
        column = mb.transpose(x=ones, perm=(1, 0))
        return {
            "linear": lambda: mb.linear(x=x, weight=ones),
            "matmul": lambda: mb.matmul(x=x, y=column),
            "einsum": lambda: mb.einsum(values=(ones.reshape(1, 16, 1, 4096), deep), equation="bkhc,bchq->bkhq"),
            "conv": lambda: mb.conv(x=deep, weight=ones.reshape(16, 4096, 1, 1)),
            "reduce_sum": lambda: mb.reduce_sum(x=x, axes=[1]),
            "reduce_mean": lambda: mb.mul(x=mb.reduce_mean(x=x, axes=[1]), y=np.float16(4096)),
            "cumsum": lambda: mb.slice_by_index(x=mb.cumsum(x=x, axis=1), begin=[0, 4095], end=[1, 4096]),
        }[kind]()

    (found,) = execute({"x": x}, body)
    exact = np.float16(np.float16(6143 / 4096) * np.float16(4096)) if kind == "reduce_mean" else 6144
    assert np.all(found == exact)


def test_cpus_without_fast_fp16_widen_and_round(execute, mil, monkeypatch):
    """The way taken on other CPUs gives the same numbers to one rounding."""
    x, weight, bias = normal(np.float16, 3, 24), normal(np.float16, 7, 24), normal(np.float16, 7)

    def body(x):
        wide = mil.mb.linear(x=x, weight=weight, bias=bias)
        return wide, mil.mb.matmul(x=x, y=mil.mb.transpose(x=x, perm=(1, 0)))

    monkeypatch.setattr(linear, "half_accumulates_wide", lambda device: False)
    first, second = execute({"x": x}, body)
    wide = x.astype(np.float64)
    check(first, wide @ weight.astype(np.float64).T + bias, np.float16, 24)
    check(second, wide @ wide.T, np.float16, 24)


def test_a_product_of_an_integer_and_a_constant_of_floats_is_an_integer(mil, execute):
    """iOS17: the type of the computed side holds (coremltools' TestMatMul.test_ios17_mixed_precision)."""
    x, y = np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(12).reshape(3, 4)
    for kind in (np.float16, np.float32):
        (found,) = execute({"x": x}, lambda x, kind=kind: mil.mb.matmul(x=x, y=y.astype(kind)))
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, x @ y)


@pytest.mark.parametrize("seed", range(30))
def test_a_long_weight_is_multiplied_in_slices_with_the_same_bits_wherever_it_lies(monkeypatch, seed):
    """Within the bound of any order of summation (reference/onednn.py), for few positions, batches and odd strides too."""
    monkeypatch.setattr(constants, "BUDGET", constants.Budget(0))
    random = np.random.default_rng(seed)
    batch, many, width, long = (int(random.integers(*span)) for span in ((1, 4), (1, 60), (1, 500), (1024, 2600)))
    x, weight, bias = (
        torch.from_numpy(normal(np.float16, *shape)) for shape in ((batch, many, width), (long, width), (long,))
    )
    x = random.choice([lambda x: x, lambda x: x.mT.contiguous().mT, lambda x: x[0], lambda x: x[:, ::2]])(x)
    given = bias if random.integers(2) else None
    released: list[int] = []
    mapped = view_mapped(weight, lambda: released.append(1))
    found = linear._linear(hold(weight), given, torch.float16)(x)
    assert torch.equal(found, linear._linear(mapped, given, torch.float16)(x)) and released
    exact = x.double() @ weight.double().T + (0 if given is None else bias.double())
    size = x.double().abs() @ weight.double().abs().T + (0 if given is None else bias.double().abs())
    rounding = torch.from_numpy(np.spacing(exact.abs().half().numpy())).double()
    assert found.dtype == torch.float16 and found.is_contiguous() and found.shape == exact.shape
    assert bool(((found.double() - exact).abs() <= rounding + (width + 1) * 2**-24 * size).all())

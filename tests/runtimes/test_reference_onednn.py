"""fp32 products by oneDNN: within the bound of any order of summation, the same bits in any order of memory and in chunks."""

import numpy as np
import pytest
import torch

from ane_sweep import reference
from ane_sweep.reference import constants, onednn

RNG = np.random.default_rng(3)
UNIT = 2.0**-24  # fp32's rounding

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def nets(mil, x, weights):
    """A block of a residual net; its middle is also read by ops that need contiguous values."""
    mb, (first, second, third) = mil.mb, weights
    y = mb.relu(x=mb.conv(x=x, weight=first, pad_type="same", strides=(2, 2)))
    z = mb.add(x=mb.conv(x=y, weight=second, pad_type="custom", pad=(1, 1, 1, 1)), y=y)
    z = mb.max_pool(x=mb.relu(x=z), kernel_sizes=(2, 2), strides=(2, 2), pad_type="valid")
    z = mb.conv(x=z, weight=third, pad_type="valid")
    flat = mb.reshape(x=z, shape=(1, 10, -1))
    return mb.sigmoid(x=z), mb.reduce_mean(x=z, axes=(2, 3)), mb.matmul(x=flat, y=flat, transpose_y=True), z, y


@pytest.fixture
def weights():
    return normal(16, 3, 3, 3), normal(16, 16, 3, 3), normal(10, 16, 1, 1)


@pytest.fixture
def net(mil, tmp_path, weights):
    x = normal(1, 3, 22, 18)
    path = mil.write(tmp_path / "net.mlpackage", {"x": x}, lambda x: nets(mil, x, weights))
    return reference.load(path), x


def watched(model, x):
    values = {}
    made = model.trace({"x": x}, lambda op, found: values.update({name: np.array(v) for name, v in found.items()}))
    return made, values


@pytest.mark.parametrize("rows, k, n", [(1, 3072, 8), (5, 40, 7), (64, 1536, 24), (200, 64, 130)])
def test_products_are_within_the_bound_of_any_order_of_summation(rows, k, n):
    x, weight, bias = normal(rows, k), normal(n, k), normal(n)
    given = [torch.from_numpy(value) for value in (x, weight, bias)]
    found = onednn.multiply(*given).numpy().astype(np.float64)
    wide = [value.astype(np.float64) for value in (x, weight, bias)]
    terms = k + 1
    bound = terms * UNIT / (1 - terms * UNIT) * (np.abs(wide[0]) @ np.abs(wide[1]).T + np.abs(wide[2]))
    assert np.all(np.abs(found - (wide[0] @ wide[1].T + wide[2])) <= bound)


@pytest.mark.parametrize("groups, stride, kernel, width", [(1, 1, 1, 12), (1, 2, 3, 12), (6, 1, 3, 12), (2, 2, 1, 5)])
def test_a_convolution_gives_the_same_bits_for_any_order_of_memory_and_any_packing(
    monkeypatch, groups, stride, kernel, width
):
    x, weight = torch.from_numpy(normal(2, 12, 9, width)), torch.from_numpy(normal(18, 12 // groups, kernel, kernel))
    sides = [kernel // 2] * 2
    run = onednn.make_convolution(constants.hold(weight), None, [stride] * 2, [1, 1], groups)
    found = run(x, sides)
    assert torch.equal(found, run(x.contiguous(memory_format=torch.channels_last), sides))
    other = onednn.make_convolution(constants.hold(weight), None, [stride] * 2, [1, 1], groups)
    other(torch.zeros(1, 12, 20, 20), sides)  # packed for another shape first
    assert torch.equal(found, other(x, sides))
    monkeypatch.setattr(constants, "BUDGET", constants.Budget(0))
    mapped = constants.view_mapped(weight, lambda: None)
    assert torch.equal(found, onednn.make_convolution(mapped, None, [stride] * 2, [1, 1], groups)(x, sides))
    exact = torch.conv2d(x.double(), weight.double(), None, stride, sides, 1, groups)
    terms = weight[0].numel()
    size = torch.conv2d(x.double().abs(), weight.double().abs(), None, stride, sides, 1, groups)
    assert bool(((found - exact).abs() <= terms * UNIT / (1 - terms * UNIT) * size).all())


def test_a_convolution_is_packed_within_the_budget_alone(monkeypatch):
    monkeypatch.setattr(constants, "BUDGET", constants.Budget(1000))
    reads: list[int] = []
    weight = constants.Constant((18, 12, 1, 1), torch.float32, lambda: reads.append(1) or torch.ones(18, 12, 1, 1))
    kept, made_anew = [onednn.make_convolution(weight, None, [1, 1], [1, 1], 1) for _ in range(2)]  # 864 bytes each
    assert constants.BUDGET.kept == 864
    for run, expected in ((kept, 1), (made_anew, 2)):
        reads.clear()
        assert bool((run(torch.ones(1, 12, 4, 4), [0, 0]) == run(torch.ones(1, 12, 4, 4), [0, 0])).all())
        assert len(reads) == expected


def test_values_pass_between_convolutions_with_channels_last_and_leave_contiguous(net):
    model, x = net
    names = {op.outputs[0]: op.type for op in model.plan.ops}
    loose = [names[name] for name in model.plan.loose]
    assert sorted(loose) == ["add", "conv", "conv", "max_pool", "relu"]  # not those that are outputs
    table = model.plan.begin(model.prepare_inputs({"x": x}, None))
    model.plan.advance(table, 0, len(model.plan.steps))
    for value in model.plan.collect_outputs(table).values():
        assert value.is_contiguous() and value.data_ptr() % 64 == 0


def test_chunks_give_the_bits_of_the_whole(net, mil, tmp_path, weights):
    """Each value of the whole, given to a program that begins there, makes the same values after it."""
    model, x = net
    made, _ = watched(model, x)
    whole = list(made.values())
    middle = whole[-1]
    mb = mil.mb

    def rest(y):
        z = mb.add(x=mb.conv(x=y, weight=weights[1], pad_type="custom", pad=(1, 1, 1, 1)), y=y)
        z = mb.max_pool(x=mb.relu(x=z), kernel_sizes=(2, 2), strides=(2, 2), pad_type="valid")
        z = mb.conv(x=z, weight=weights[2], pad_type="valid")
        flat = mb.reshape(x=z, shape=(1, 10, -1))
        return mb.sigmoid(x=z), mb.reduce_mean(x=z, axes=(2, 3)), mb.matmul(x=flat, y=flat, transpose_y=True), z

    second = reference.load(mil.write(tmp_path / "rest.mlpackage", {"y": middle}, rest))
    for one, other in zip(whole, second.predict({"y": middle}).values(), strict=False):
        assert one.tobytes() == other.tobytes()


def test_fp16_programs_do_not_come_here(mil, tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("an fp16 product by oneDNN")

    monkeypatch.setattr(onednn, "multiply", refuse)
    monkeypatch.setattr(onednn, "make_convolution", refuse)
    x, weight, kernel = (normal(*shape, dtype=np.float16) for shape in ((1, 4, 8, 8), (5, 8), (6, 4, 3, 3)))
    mb = mil.mb
    path = mil.write(
        tmp_path / "half.mlpackage", {"x": x},
        lambda x: (mb.linear(x=x, weight=weight), mb.conv(x=x, weight=kernel, pad_type="valid")),
    )  # fmt: skip
    assert len(reference.load(path).predict({"x": x})) == 2
    with pytest.raises(AssertionError, match="fp16 product"):
        reference.load(path, numerics="fp32").predict({"x": x})

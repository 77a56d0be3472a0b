"""pools_in_steps and kernels_in_parts: proven over random windows, paddings, strides; look-alikes left alone."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from fix.checks import check_rewrite, check_untouched, count_ops, save
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("coremltools")
from coremltools.converters.mil import Builder as mb

from ane_sweep.fix import driver

FEW = settings(max_examples=12, deadline=None)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield lambda: Path(tempfile.mkdtemp(dir=made)) / "m.mlpackage"


@FEW
@given(high=st.integers(1, 10), wide=st.integers(9, 25), data=st.data())
def test_a_wide_pool_becomes_steps(folder, high, wide, data):
    kind = data.draw(st.sampled_from(["valid", "same", "same_lower", "custom"]))
    given = {"kernel_sizes": [high, wide], "strides": data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))}
    if kind == "custom":
        given["pad"] = [data.draw(st.integers(0, size - 1)) for size in (high, high, wide, wide)]
    source = save(folder(), lambda x: mb.max_pool(x=x, pad_type=kind, **given), x=("fp16", (1, 2, 11, 29)))
    made = check_rewrite("pools_in_steps", source, places=1)
    assert count_ops(made) == {"max_pool": -(-(wide - 1) // 7)}


@pytest.mark.parametrize("given", [{"kernel_sizes": [13, 8]}, {"kernel_sizes": [3, 9], "ceil_mode": True}])
def test_narrow_pools_and_those_that_round_up_stay(folder, given):
    x = ("fp16", (1, 2, 20, 20))
    source = save(folder(), lambda x: mb.max_pool(x=x, strides=[2, 2], pad_type="valid", **given), x=x)
    check_untouched("pools_in_steps", source)


@pytest.mark.slow
@pytest.mark.ci
@FEW
@given(high=st.sampled_from([1, 3, 40]), wide=st.sampled_from([1, 5, 14, 30]), data=st.data())
def test_a_long_kernel_becomes_parts(folder, high, wide, data):
    assume(high > 31 or wide > 13)
    kind = data.draw(st.sampled_from(["valid", "same", "same_lower", "custom"]))
    steps = st.tuples(st.integers(1, 3), st.integers(1, 3))
    given = {"strides": data.draw(steps), "dilations": data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))}
    if kind == "custom":
        given["pad"] = [data.draw(st.integers(0, 3)) for _ in range(4)]
    random = np.random.default_rng(0)
    weight = (random.standard_normal((4, 4, high, wide)) / 16).astype(np.float16)
    bias = random.standard_normal(4).astype(np.float16) if data.draw(st.booleans()) else None

    def body(x):
        return mb.conv(x=x, weight=weight, bias=bias, pad_type=kind, **given)

    made = check_rewrite("kernels_in_parts", save(folder(), body, x=("fp16", (1, 4, 90, 64))), places=1)
    counted = count_ops(made)
    assert (counted["conv"], counted["slice_by_index"]) == (1, -(-high // 31) * -(-wide // 13))


def test_small_grouped_and_computed_kernels_stay(folder):
    for size, groups in (((31, 13), 1), ((3, 20), 4)):
        weight = np.zeros((4, 4 // groups, *size), np.float16)
        source = save(
            folder(), lambda x, w=weight, n=groups: mb.conv(x=x, weight=w, groups=n), x=("fp16", (1, 4, 40, 40))
        )
        check_untouched("kernels_in_parts", source)
    given = {"x": ("fp16", (1, 4, 40, 40)), "w": ("fp16", (4, 4, 3, 20))}
    check_untouched("kernels_in_parts", save(folder(), lambda x, w: mb.conv(x=x, weight=w), **given))


def make_convs(width, inner):
    """Return a body of convolutions with something in their midst."""
    weight = (np.random.default_rng(0).standard_normal((64, 64, *width)) / 20).astype(np.float16)

    def body(x):
        for index in range(8):
            x = mb.relu(x=mb.conv(x=x, weight=weight, pad_type="same"))
            x = inner(x) if index == 3 else x
        return x

    return body


def test_a_pyramid_of_pools_comes_to_the_neural_engine(folder):
    def pyramid(x):
        pools = [mb.max_pool(x=x, kernel_sizes=[size, size], strides=[1, 1], pad_type="same") for size in (5, 9, 13)]
        return mb.add(x=mb.add(x=pools[0], y=pools[1]), y=pools[2])

    report = driver.fix(save(folder(), make_convs((3, 3), pyramid), x=("fp16", (1, 64, 20, 20))))
    assert [one.rewrite for one in report.applied] == ["pools_in_steps"]
    assert (report.before.refused, report.after.refused) == (2, 0)


def test_a_long_kernel_comes_to_the_neural_engine(folder):
    weight = (np.random.default_rng(1).standard_normal((64, 64, 1, 31)) / 45).astype(np.float16)

    def long(x):
        return mb.conv(x=x, weight=weight, pad_type="same")

    report = driver.fix(save(folder(), make_convs((1, 3), long), x=("fp16", (1, 64, 1, 1500))))
    assert [one.rewrite for one in report.applied] == ["kernels_in_parts"]
    assert (report.before.refused, report.after.refused) == (1, 0)

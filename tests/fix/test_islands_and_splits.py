"""fp32_islands, split_outputs and scatter_to_mask: proven over random shapes; look-alikes left alone."""

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
from ane_sweep.fix import driver

FEW = settings(max_examples=6, deadline=None)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield lambda: Path(tempfile.mkdtemp(dir=made)) / "m.mlpackage"


def island(x, body):
    return mb.cast(x=body(mb.cast(x=x, dtype="fp32")), dtype="fp16")


@FEW
@given(shape=st.lists(st.integers(1, 4), min_size=2, max_size=4), data=st.data())
def test_an_island_of_one_sum_becomes_fp16(folder, shape, data):
    axis = data.draw(st.integers(-len(shape), -1))
    kind = data.draw(st.sampled_from(["softmax", "relu", "mean"]))

    def body(x):
        x = mb.transpose(x=x, perm=[*range(len(shape))][::-1])
        if kind == "mean":
            return mb.reduce_mean(x=x, axes=[axis], keep_dims=True)
        return mb.softmax(x=x, axis=axis) if kind == "softmax" else mb.relu(x=x)

    made = check_rewrite("fp32_islands", save(folder(), lambda x: island(x, body), x=("fp16", shape)), places=1)
    assert "cast" not in count_ops(made)


def test_an_epsilon_may_be_rounded(folder):
    def norm(x):
        return mb.layer_norm(x=x, axes=[-1], epsilon=np.float32(1e-5))

    check_rewrite("fp32_islands", save(folder(), lambda x: island(x, norm), x=("fp16", (2, 64))), places=1)


def test_an_island_of_pooling_gains(folder):
    weight = (np.random.default_rng(0).standard_normal((64, 64, 3, 3)) * 0.05).astype(np.float16)

    def body(x):
        for _ in range(3):
            x = mb.relu(x=mb.conv(x=x, weight=weight, pad_type="same"))
            x = island(x, lambda x: mb.avg_pool(x=x, kernel_sizes=[2, 2], strides=[1, 1], pad_type="same"))
        return x

    source = save(folder(), body, x=("fp16", (1, 64, 32, 32)))
    report = driver.fix(source, source.with_name("better.mlpackage"), only=("fp32_islands",))
    assert [trial.status for trial in report.trials] == ["applied"], report.trials
    assert (report.before.refused, report.after.refused) == (3, 0) and report.after.segments == 1


@pytest.mark.parametrize(
    "body",
    [
        lambda x: island(x, lambda x: mb.mul(x=x, y=np.float32(1e6))),
        lambda x: island(x, lambda x: mb.add(x=x, y=np.float32(1e-12))),
        lambda x: island(x, lambda x: mb.exp(x=mb.mul(x=x, y=np.float32(1 / 3)))),
        lambda x: mb.softmax(x=mb.cast(x=x, dtype="fp32"), axis=-1),
        lambda x: mb.cast(x=mb.cast(x=x, dtype="fp32"), dtype="fp16"),
    ],
)
def test_islands_beyond_fp16_or_that_are_returned_stay(folder, body):
    check_untouched("fp32_islands", save(folder(), body, x=("fp16", (2, 4))))


def test_an_island_whose_beginning_others_read_is_proven_with_it(folder):
    def body(x):
        wide = mb.cast(x=x, dtype="fp32")
        return mb.cast(x=mb.softmax(x=wide, axis=-1), dtype="fp16"), mb.exp(x=wide)

    check_rewrite("fp32_islands", save(folder(), body, x=("fp16", (2, 4))), places=1)


def test_an_island_that_needs_fp32_is_refused_by_its_proof(folder):
    def body(x):
        return mb.sqrt(x=mb.reduce_mean(x=mb.square(x=x), axes=[-1], keep_dims=True))

    source = save(folder(), lambda x: island(mb.mul(x=x, y=np.float16(300)), body), x=("fp16", (4, 64)))
    report = driver.fix(source, only=("fp32_islands",))
    assert report.applied == [] and "loses accuracy in fp16" in report.trials[0].reason
    assert report.trials[0].reason.endswith(
        "-> -inf dB"
    )  # its own inputs are too small for it: the whole program shows it


@pytest.fixture
def few_outputs(monkeypatch):
    from ane_sweep.fix.rewrites import split_outputs

    monkeypatch.setattr(split_outputs, "_MOST", 4)


@pytest.mark.parametrize("kind", ["fp16", "fp32"])
@pytest.mark.parametrize("outputs", [5, 8, 13])
@pytest.mark.parametrize("is_conv", [True, False])
def test_products_with_many_outputs_are_split(folder, few_outputs, kind, outputs, is_conv):
    dtype = np.float16 if kind == "fp16" else np.float32
    draw = np.random.default_rng(0).standard_normal
    bias = draw(outputs).astype(dtype)

    def body(x):
        if is_conv:
            return mb.conv(
                x=x, weight=draw((outputs, 3, 1, 2)).astype(dtype), bias=bias, pad_type="same", strides=[1, 2]
            )
        return mb.linear(x=x, weight=draw((outputs, 8)).astype(dtype), bias=bias)

    made = check_rewrite("split_outputs", save(folder(), body, x=(kind, (1, 3, 2, 8))), places=1)
    assert count_ops(made) == {"conv" if is_conv else "linear": -(-outputs // 4), "concat": 1}


def test_small_grouped_and_computed_products_stay(folder, few_outputs):
    weight = np.random.default_rng(0).standard_normal((6, 1, 1, 1)).astype(np.float16)
    x = ("fp16", (1, 3, 2, 2))
    check_untouched("split_outputs", save(folder(), lambda x: mb.conv(x=x, weight=weight, groups=3), x=x))
    check_untouched("split_outputs", save(folder(), lambda x: mb.conv(x=x, weight=weight[:3], groups=3), x=x))
    source = save(folder(), lambda x, w: mb.conv(x=x, weight=w), x=x, w=("fp16", (8, 3, 1, 1)))
    check_untouched("split_outputs", source)


@FEW
@given(rank=st.integers(1, 4), along=st.booleans(), slots=st.integers(2, 5), data=st.data())
def test_a_scatter_of_one_slot_becomes_a_mask(folder, rank, along, slots, data):
    axis, place = data.draw(st.integers(-rank, rank - 1)), data.draw(st.integers(0, slots - 1))
    shape = [2] * rank
    shape[axis] = slots
    new = [*shape]
    new[axis] = 1

    def body(cache_values, new_values, place):
        options = {"data": cache_values, "updates": new_values, "axis": axis, "mode": "update"}
        if along:
            wide = mb.tile(x=mb.reshape(x=place, shape=[1] * rank), reps=new)
            return mb.scatter_along_axis(indices=wide, **options)
        return mb.scatter(indices=place, **options)

    types = {"cache_values": ("fp16", shape), "new_values": ("fp16", new), "place": ("int32", (1,))}
    source = save(folder(), body, **types)
    made = check_rewrite("scatter_to_mask", source, places=1)
    draw = np.random.default_rng(0).standard_normal
    values = {name: draw(shape).astype(np.float16) for name, (_, shape) in types.items()}
    values["place"] = np.array([place], np.int32)
    (before,), (after,) = (reference.load(path).predict(values).values() for path in (source, made))
    assert np.array_equal(before, after) and not any("scatter" in kind for kind in count_ops(made))


def test_scatters_that_add_of_several_slots_or_in_fp32_stay(folder):
    def scatter(mode):
        return lambda cache, new, place: mb.scatter(data=cache, indices=place, updates=new, axis=1, mode=mode)

    def types(kind, count):
        return {"cache": (kind, (2, 4)), "new": (kind, (2, count)), "place": ("int32", (count,))}

    check_untouched("scatter_to_mask", save(folder(), scatter("add"), **types("fp16", 1)))
    check_untouched("scatter_to_mask", save(folder(), scatter("update"), **types("fp16", 2)))
    check_untouched("scatter_to_mask", save(folder(), scatter("update"), **types("fp32", 1)))

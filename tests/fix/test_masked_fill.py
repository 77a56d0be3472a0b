"""masked_fill and scalar_gather: proven over random masks and shapes; look-alikes left alone."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from fix.checks import check_rewrite, check_untouched, count_ops, save
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("coremltools")
from coremltools.converters.mil import Builder as mb

FEW = settings(max_examples=8, deadline=None)
TYPES = {"fp16": np.float16, "fp32": np.float32}


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield lambda: Path(tempfile.mkdtemp(dir=made)) / "m.mlpackage"


def attend(mask, fill, turned=False, axis=-1):
    def body(x):
        scores = mb.matmul(x=x, y=x, transpose_y=True)
        a, b = (fill, scores) if turned else (scores, fill)
        return mb.softmax(x=mb.select(cond=~mask if turned else mask, a=a, b=b), axis=axis)

    return body


@FEW
@given(
    kind=st.sampled_from(["fp16", "fp32"]), fill=st.sampled_from([-np.inf, -1e4, -6e4]), turned=st.booleans(),
    size=st.integers(2, 5), seed=st.integers(0, 99), is_wide=st.booleans(),
)  # fmt: skip
def test_a_constant_mask_is_added(folder, kind, fill, turned, size, seed, is_wide):
    mask = np.random.default_rng(seed).integers(0, 2, (size, size)).astype(bool) | np.eye(size, dtype=bool)
    value = np.full((1, 2, size, size), fill, TYPES[kind]) if is_wide else TYPES[kind](fill)
    source = save(folder(), attend(mask, value, turned), x=(kind, (1, 2, size, 4)))
    assert count_ops(check_rewrite("masked_fill", source, places=1)) == {"matmul": 1, "add": 1, "softmax": 1}


def test_masks_with_full_rows_weak_fills_and_computed_ones_stay(folder):
    x = ("fp16", (1, 1, 3, 4))
    lower, full = np.tril(np.ones((3, 3), bool)), np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]], bool)
    check_untouched("masked_fill", save(folder(), attend(full, np.float16(-np.inf)), x=x))
    check_untouched("masked_fill", save(folder(), attend(lower, np.float16(-100)), x=x))
    check_untouched("masked_fill", save(folder(), attend(full.T, np.float16(-1e4), axis=2), x=x))

    def computed(x, mask):
        return mb.softmax(x=mb.select(cond=mb.cast(x=mask, dtype="bool"), a=x, b=np.float16(-1e4)), axis=-1)

    check_untouched("masked_fill", save(folder(), computed, x=x, mask=("int32", (1, 1, 3, 4))))

    def without_softmax(x):
        return mb.select(cond=np.array([True, False, True, True]), a=x, b=np.float16(-1e4))

    check_untouched("masked_fill", save(folder(), without_softmax, x=x))


@FEW
@given(
    kind=st.sampled_from(["fp16", "fp32"]), shape=st.lists(st.integers(1, 4), min_size=2, max_size=4), data=st.data()
)
def test_a_gather_of_rank_0_gets_an_axis(folder, kind, shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    place = data.draw(st.integers(0, shape[axis] - 1))

    def body(x):
        return mb.relu(x=mb.gather(x=x, indices=np.int32(place), axis=axis))

    made = check_rewrite("scalar_gather", save(folder(), body, x=(kind, shape)), places=1)
    assert count_ops(made) == {"gather": 1, "squeeze": 1, "relu": 1}


def test_gathers_of_several_and_by_computed_places_stay(folder):
    check_untouched("scalar_gather", save(folder(), lambda x: mb.gather(x=x, indices=[1, 0]), x=("fp16", (3, 2))))

    def computed(x, place):
        return mb.gather(x=x, indices=mb.squeeze(x=place, axes=[0]))

    check_untouched("scalar_gather", save(folder(), computed, x=("fp16", (3, 2)), place=("int32", (1,))))

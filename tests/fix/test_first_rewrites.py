"""split_to_slices, reflect_pad and softplus_shifted: proven over random shapes, and look-alikes left alone."""

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
KINDS = st.sampled_from(["fp16", "fp32"])


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield lambda: Path(tempfile.mkdtemp(dir=made)) / "m.mlpackage"


@FEW
@given(kind=KINDS, sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), rank=st.integers(1, 5), data=st.data())
def test_a_split_becomes_slices(folder, kind, sizes, rank, data):
    axis = data.draw(st.integers(-rank, rank - 1))
    shape = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    shape[axis] = sum(sizes)

    def body(x):
        parts = mb.split(x=x, split_sizes=sizes, axis=axis)
        parts = parts if isinstance(parts, (list, tuple)) else [parts]
        return tuple(mb.relu(x=part) for part in parts)

    made = check_rewrite("split_to_slices", save(folder(), body, x=(kind, shape)), places=1)
    assert count_ops(made) == {"slice_by_index": len(sizes), "relu": len(sizes)}


def test_parts_that_are_outputs_keep_their_names_and_unread_ones_go(folder):
    def body(x):
        first, _, last = mb.split(x=x, num_splits=3, axis=1, name="part")
        return first, mb.sin(x=last, name="sine")

    made = check_rewrite("split_to_slices", save(folder(), body, x=("fp32", (2, 6))), places=1)
    assert count_ops(made) == {"slice_by_index": 2, "sin": 1}


@FEW
@given(kind=KINDS, pads=st.lists(st.integers(0, 3), min_size=4, max_size=4), rank=st.integers(2, 4))
def test_a_reflecting_pad_becomes_slices_and_concats(folder, kind, pads, rank):
    package = save(
        folder(), lambda x: mb.relu(x=mb.pad(x=x, pad=pads, mode="reflect")), x=(kind, [1, 2, 5, 4][4 - rank :])
    )
    if any(pads):
        made = check_rewrite("reflect_pad", package, places=1)
        assert count_ops(made)["slice_by_index"] == sum(pads) and "pad" not in count_ops(made)


@pytest.mark.parametrize("pad", [{"mode": "replicate", "pad": [1, 1]}, {"mode": "reflect", "pad": [9, 0]}])
def test_other_pads_and_wide_ones_stay(folder, pad):
    check_untouched("reflect_pad", save(folder(), lambda x: mb.pad(x=x, **pad), x=("fp16", (2, 12))))


@FEW
@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=4), is_mish=st.booleans())
def test_softplus_is_shifted(folder, shape, is_mish):
    def body(x):
        y = mb.softplus(x=x)
        return mb.mul(x=x, y=mb.tanh(x=y)) if is_mish else y

    made = check_rewrite("softplus_shifted", save(folder(), body, x=("fp16", [*shape, 64])), places=1)
    assert count_ops(made)["softplus"] == 1


def test_softplus_in_fp32_and_of_what_cannot_overflow_stays(folder):
    check_untouched("softplus_shifted", save(folder(), lambda x: mb.softplus(x=x), x=("fp32", (1, 8))))

    def body(x):
        return mb.softplus(x=mb.mul(x=mb.abs(x=x), y=np.float16(-0.5)))

    check_untouched("softplus_shifted", save(folder(), body, x=("fp16", (1, 8))))

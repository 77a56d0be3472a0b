"""integers_to_fp16 and merge_repeats: chains of masks and positions, equal for any whole numbers; look-alikes left alone."""

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
from ane_sweep.mil import graph

FEW = settings(max_examples=8, deadline=None)
COMPARES = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
NUMBERS = st.one_of(st.integers(-3, 3), st.integers(2040, 2060), st.integers(-(2**31), 2**31 - 1))


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield lambda: Path(tempfile.mkdtemp(dir=made)) / "m.mlpackage"


def assert_equal_for(one, two, **values):
    before, after = (reference.load(path).predict(values) for path in (one, two))
    for name, value in before.items():
        assert np.array_equal(value, after[name]), (name, value, after[name])


@FEW
@given(
    kind=st.sampled_from(COMPARES),
    number=st.integers(-2047, 2047),
    ids=st.lists(NUMBERS, min_size=4, max_size=4),
    turned=st.booleans(),
)
def test_a_comparison_behind_moved_integers(folder, kind, number, ids, turned):
    def body(ids):
        moved = mb.tile(x=mb.expand_dims(x=ids, axes=[1]), reps=[1, 2, 1])
        x, y = (np.int32(number), moved) if turned else (moved, np.int32(number))
        return mb.cast(x=getattr(mb, kind)(x=x, y=y), dtype="fp16")

    source = save(folder(), body, ids=("int32", (1, 4)))
    made = check_rewrite("integers_to_fp16", source, places=1)
    assert_equal_for(source, made, ids=np.array([[*ids[:3], number + 1]], np.int32))
    assert count_ops(made) == {"cast": 2, "expand_dims": 1, "tile": 1, kind: 1}


@FEW
@given(data=st.data(), count=st.integers(1, 4))
def test_sums_of_masks(folder, data, count):
    kinds = [data.draw(st.sampled_from(["add", "sub", "mul", "maximum", "minimum"])) for _ in range(count)]
    number = data.draw(st.integers(-5, 5))

    def body(x):
        whole = mb.cast(x=mb.greater(x=x, y=np.float16(0)), dtype="int32")
        for kind in kinds:
            whole = getattr(mb, kind)(x=whole, y=whole if kind == "mul" else np.int32(number))
            whole = mb.reshape(x=whole, shape=[2, 3])
        return mb.cast(x=whole, dtype="fp16")

    source = save(folder(), body, x=("fp16", (2, 3)))
    made = check_rewrite("integers_to_fp16", source)
    assert "int32" not in _dtypes(made)
    assert_equal_for(source, made, x=np.random.default_rng(0).standard_normal((2, 3)).astype(np.float16))


def _dtypes(path):
    program = graph.load(path)
    return {str(program.tensor_type(name).dtype) for op in program.ops if op.type != "const" for name in op.outputs}


def test_what_may_exceed_fp16_stays_in_integers(folder):
    def add(ids):
        return mb.cast(x=mb.add(x=ids, y=np.int32(1)), dtype="fp16")

    def compare(ids):
        return mb.cast(x=mb.less(x=mb.expand_dims(x=ids, axes=[0]), y=np.int32(2048)), dtype="fp16")

    def look_up(ids):
        return mb.gather(x=np.eye(4, dtype=np.float16), indices=mb.expand_dims(x=ids, axes=[0]), axis=0)

    def grow(ids):
        one = mb.cast(x=mb.cast(x=ids, dtype="bool"), dtype="int32")
        return mb.cast(x=mb.mul(x=mb.add(x=one, y=np.int32(2047)), y=np.int32(2)), dtype="fp32")

    for body in (add, compare, look_up, grow):
        check_untouched("integers_to_fp16", save(folder(), body, ids=("int32", (4,))))


def test_a_chain_begins_where_the_exact_part_does(folder):
    """A sum of unknown numbers stays, and is cast once for both of its ends."""

    def body(ids):
        total = mb.expand_dims(x=mb.add(x=ids, y=np.int32(1)), axes=[0])
        return mb.cast(x=total, dtype="fp16"), mb.cast(x=mb.equal(x=total, y=np.int32(7)), dtype="fp16")

    source = save(folder(), body, ids=("int32", (4,)))
    made = check_rewrite("integers_to_fp16", source, places=4)  # two of them are companions that merge repeats
    assert count_ops(made) == {"add": 1, "cast": 2, "expand_dims": 1, "equal": 1}
    assert_equal_for(source, made, ids=np.array([6, 2047, 70000, -9], np.int32))


@FEW
@given(kind=st.sampled_from(["fp16", "fp32"]), shape=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_equal_ops_are_computed_once(folder, kind, shape):
    def body(x):
        parts = [mb.mul(x=mb.sin(x=x), y=mb.cos(x=x)) for _ in range(3)]
        return mb.add(x=mb.add(x=parts[0], y=parts[1]), y=parts[2])

    made = check_rewrite("merge_repeats", save(folder(), body, x=(kind, shape)), places=6)
    assert count_ops(made) == {"sin": 1, "cos": 1, "mul": 1, "add": 2}


def test_unequal_ops_and_outputs_are_not_merged(folder):
    def body(x):
        axes = [mb.softmax(x=x, axis=axis) for axis in (0, 1)]
        scaled = [mb.mul(x=x, y=np.float16(number)) for number in (2, 3)]
        drawn = [mb.random_normal(shape=[2, 2], mean=np.float16(0), stddev=np.float16(1)) for _ in range(2)]
        total, *rest = [*axes, *scaled, *drawn]
        for one in rest:
            total = mb.add(x=total, y=one)
        return mb.relu(x=x, name="one"), mb.relu(x=x, name="two"), total

    check_untouched("merge_repeats", save(folder(), body, x=("fp16", (2, 2))))

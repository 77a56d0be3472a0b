"""The inputs of a given model: what may be said of them, and the shapes that follow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ane_sweep.bridge import shapes
from ane_sweep.errors import ConfigError

SIZES = st.one_of(
    st.integers(1, 1000), st.tuples(st.integers(1, 500), st.integers(1, 500)).map(lambda p: f"{p[0]}..{p[0] + p[1]}")
)


def test_a_shape_alone_is_fp32_and_fixed():
    (one,) = shapes.read({"x": [1, 3, 8, 8]})
    assert (one.dtype, one.values, one.flexible) == ("float32", None, False)
    assert shapes.points((one,)) == [((1, 3, 8, 8),)]


def test_several_shapes_are_taken_together_and_a_fixed_input_stays():
    taken = shapes.read({"x": [[1, 4], [1, 8]], "mask": {"shape": [[1, 1, 4], [1, 1, 8]], "dtype": "bool"}, "k": [1]})
    assert shapes.points(taken) == [((1, 4), (1, 1, 4), (1,)), ((1, 8), (1, 1, 8), (1,))]
    assert [shapes.label(taken, point) for point in shapes.points(taken)] == ["1x4_1x1x4", "1x8_1x1x8"]


@given(st.lists(SIZES, min_size=1, max_size=5))
def test_the_points_of_ranges_lie_within_them_and_the_default_is_the_largest(sizes):
    taken = shapes.read({"x": sizes})
    bounds = [(size, size) if isinstance(size, int) else tuple(map(int, size.split(".."))) for size in sizes]
    points = [shape for (shape,) in shapes.points(taken)]
    assert points[0] == tuple(high for _, high in bounds)
    assert len(points) == len(set(points)) <= 3
    assert all(low <= size <= high for shape in points for size, (low, high) in zip(shape, bounds))
    if taken[0].flexible:
        assert tuple(low for low, _ in bounds) in points


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "no inputs"),
        ({"x": 5}, "expected a shape of 1 to 5 sizes"),
        ({"x": [1, 2, 3, 4, 5, 6]}, "expected a shape of 1 to 5 sizes"),
        ({"x": [0]}, "a size is a number from 1"),
        ({"x": [True]}, "a size is a number from 1"),
        ({"x": ["8..1"]}, "a size is a number from 1"),
        ({"x": ["3..3"]}, "a size is a number from 1"),
        ({"a-b": [1]}, "expected a name"),
        ({"x": {"shape": [1], "dtype": "fp16"}}, "choices: float32, int32, int64, bool"),
        ({"x": {"shape": [1], "min": 0}}, "nothing reads 'min'"),
        ({"x": {"dtype": "int32"}}, "shape is missing"),
        ({"x": {"shape": [1], "dtype": "int32"}}, "need range"),
        ({"x": {"shape": [1], "dtype": "int32", "range": [0, 0]}}, r"expected range: \[LOW, HIGH\]"),
        ({"x": {"shape": [1], "dtype": "int32", "range": [0, 2**40]}}, "32 bits"),
        ({"x": {"shape": [1], "range": [2, 1]}}, r"expected range: \[LOW, HIGH\]"),
        ({"x": [[1, 2], [1]]}, "different numbers of axes"),
        ({"x": [[1, "1..2"], [1, 3]]}, "not both"),
        ({"x": [[1], [2]], "y": [[1], [2], [3]]}, "equally many"),
    ],
)
def test_what_is_no_input_is_one_sentence(spec, said):
    with pytest.raises(ConfigError, match=said) as caught:
        shapes.read(spec)
    assert len(caught.value.problems) == 1 and "\n" not in str(caught.value)
    assert shapes.problem("model.inputs", spec) == caught.value.problems[0]

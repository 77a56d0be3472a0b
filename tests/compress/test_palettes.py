"""Tables of values: as good as the exact solution, whatever the shape, type and number of threads."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ane_sweep.worker.compress import palettes
from ane_sweep.worker.compress.palettes import Palettes, kmeans

RNG = np.random.default_rng(7)


def error(numbers, table, index) -> float:
    return float(np.square(table[index].astype(np.float64) - numbers.reshape(-1).astype(np.float64)).mean())


@settings(max_examples=40)
@given(st.lists(st.integers(-20, 20), min_size=2, max_size=9), st.sampled_from([1, 2]))
def test_no_other_split_is_better(values, bits):
    """Sorted numbers are best split into runs: every split into 2^bits runs is tried."""
    numbers = np.array(sorted(values), np.float32)
    count = min(1 << bits, len(numbers))
    splits = itertools.combinations(range(1, len(numbers)), count - 1)
    parts = ([numbers[a:b] for a, b in itertools.pairwise((0, *split, len(numbers)))] for split in splits)
    best = min(sum(float(np.square(part - part.mean()).sum()) for part in split) for split in parts)
    assert error(numbers, *kmeans(numbers, bits)) * len(numbers) == pytest.approx(best, rel=1e-5, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 6, 8])
def test_merging_before_the_exact_solution_costs_next_to_nothing(bits):
    numbers = RNG.standard_t(3, 50_000).astype(np.float16)
    values, counts = np.unique(numbers, return_counts=True)
    assert len(values) > palettes._LEAST_POINTS  # or nothing was merged
    centres = palettes._solve_exactly(values.astype(np.float64), counts.astype(np.float64), 1 << bits)
    exact = centres.astype(np.float16)[palettes._find_nearest(values.astype(np.float64), centres)]
    least = float((counts * np.square(values.astype(np.float64) - exact)).sum() / counts.sum())
    # Merged points number 8 an entry: within an entry they cost about 1/8^2 of its own error, and Lloyd's steps mend most.
    assert error(numbers, *kmeans(numbers, bits)) <= least * (1 + 1 / 64)


def test_few_distinct_values_are_kept_exactly():
    numbers = RNG.choice(np.array([-3, 0, 0.5, 7], np.float16), (5, 6, 2))
    table, index = kmeans(numbers, 2)
    assert table.dtype == np.float16 and index.dtype == np.uint8
    np.testing.assert_array_equal(table[index].reshape(numbers.shape), numbers)
    assert len(kmeans(numbers, 6)[0]) == 64


def test_zeros_that_are_masked_take_no_entry():
    numbers = np.array([0, -0.0, 1, 2, 3, 4], np.float16)
    table, index = kmeans(numbers, 2, ignore_zeros=True)
    np.testing.assert_array_equal(table[index[2:]], numbers[2:])
    assert kmeans(np.zeros(4, np.float16), 1, ignore_zeros=True)[0].tolist() == [0, 0]


def test_errors_count_by_importance():
    numbers = np.array([[1.0, 2.0], [10.0, 20.0]], np.float32)
    table, index = kmeans(numbers, 1, importance=np.array([[100.0], [1e-3]]))
    assert abs(table[index[0]] - 1) < 0.01  # the important row is met, 2, 10 and 20 share the other entry


def test_prepared_on_all_cores_or_on_the_spot_it_is_the_same():
    groups = [RNG.normal(size=(8, 40)).astype(np.float16) for _ in range(6)]
    prepared, late = Palettes(), Palettes()
    prepared.prepare(((group, 3, False, None) for group in groups), most=400)  # one ahead
    for group in groups:
        both = prepared.function(3, False)(group), late.function(3, False)(group)
        for one, other in zip(*both):
            np.testing.assert_array_equal(one, other)
    assert (prepared.late, late.late) == (0, 6)

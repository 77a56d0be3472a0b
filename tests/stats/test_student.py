"""Student's t on trimmed means: exact values, and scipy's own tests where they say the same."""

import math
import random

import pytest
from scipy import stats

from ane_sweep.stats.student import holm, t_quantile, t_tail, trimmed_mean, typical_interval, weigh_difference


@pytest.mark.parametrize(
    ("level", "freedom", "t"),  # any table of Student's t, two-sided
    [(0.95, 1, 12.706), (0.99, 1, 63.657), (0.99, 4, 4.604), (0.99, 10, 3.169), (0.95, 30, 2.042), (0.99, 1e6, 2.576)],
)
def test_student(level, freedom, t):
    assert t_quantile(level, freedom) == pytest.approx(t, abs=6e-4)
    assert t_tail(t, freedom) == pytest.approx(1 - level, rel=1e-3)


def test_the_tail_at_its_ends():
    assert t_tail(1, 1) == pytest.approx(0.5) and t_tail(math.inf, 3) == 0 and t_tail(0, 3) == 1


@pytest.mark.parametrize("count", [3, 5, 8, 13])
def test_it_is_yuens_test_as_scipy_has_it(count):
    """scipy cuts off int(0.2 n); below eight processes nothing is cut here, and pairs are never cut by scipy."""
    drawn = random.Random(count)
    a, b = ({r: math.exp(drawn.gauss(0, 0.1)) for r in range(count)} for _ in range(2))
    logs = [[math.log(value) for value in side.values()] for side in (a, b)]
    theirs = stats.ttest_ind(*logs, equal_var=False, trim=0.2 if count >= 8 else 0)
    assert weigh_difference(a, b).p == pytest.approx(theirs.pvalue, rel=1e-9)
    if count == 5:
        assert weigh_difference(a, b, paired=True).p == pytest.approx(stats.ttest_rel(*logs).pvalue, rel=1e-9)


def test_from_eight_on_a_fifth_is_trimmed_at_either_end():
    """Worked by hand: 1..7 and an outlier keep 2..7; winsorised 2 2 3 4 5 6 7 7, with squares around 4.5 of 30 / 7."""
    found = trimmed_mean([1, 2, 3, 4, 5, 6, 7, 100])
    assert (found.mean, found.count) == (4.5, 6) and found.square == pytest.approx(7 * (30 / 7) / (6 * 5))
    assert trimmed_mean(range(20)).count == 12
    assert trimmed_mean([1, 2, 3, 4, 5, 6, 100]).count == 7
    plain = trimmed_mean([1, 2, 3])
    assert (plain.mean, plain.square) == (2, pytest.approx(1 / 3))


def test_holm():
    assert holm([0.004, 0.03, None, 0.0001], 0.01) == [True, False, False, True]
    assert holm([0.006, 0.006], 0.01) == [False, False] and holm([0.006], 0.01) == [True]
    assert holm([], 0.01) == []


def test_interval():
    assert typical_interval([5.0]) is None
    low, high = typical_interval([9.0, 10.0, 11.0])
    assert low < 9 and 11 < high < 15

"""The shortest path against every possible choice, and the worked examples of the study."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ane_sweep.placement import path

COST = st.floats(0, 1, allow_nan=False)
OPS = st.lists(st.tuples(COST, st.none() | COST), min_size=1, max_size=8)


def price(costs, units):
    """Total ms of a given choice, written out: infinite where it asks the ANE for what it refuses."""
    total = 0.0
    for place, ((on_cpu, on_ane), unit) in enumerate(zip(costs, units, strict=True)):
        total += on_cpu if unit == "cpu" else float("inf") if on_ane is None else on_ane
        if place and unit != units[place - 1]:
            total += path.SWITCH_MS
        if unit == "ane" and (place == 0 or units[place - 1] != "ane"):
            total += path.LAUNCH_MS
    return total + (path.COPY_BACK_MS if units[-1] == "ane" else 0.0)


@given(OPS)
def test_no_choice_is_cheaper(ops):
    units, total = path.choose(ops)
    assert price(ops, units) == pytest.approx(total)
    best = min(price(ops, choice) for choice in product(("cpu", "ane"), repeat=len(ops)))
    assert total == pytest.approx(best)


CONV = (0.10006388, 0.00467428)  # 3x3, 64 channels, 32x32: Core ML's own estimates
RELU = (0.00262144, 0.00262144)


def test_one_convolution_stays_and_four_go():
    assert path.choose([CONV])[0] == ["cpu"]
    assert path.choose([CONV, RELU, CONV, RELU])[0] == ["cpu"] * 4
    assert path.choose([CONV, RELU] * 4)[0] == ["ane"] * 8


def test_islands_need_three_eighths_and_edges_a_quarter():
    barrier, step = (0.01, None), (0.30, 0.0)
    assert path.choose([step])[0] == ["ane"]
    assert path.choose([barrier, step, barrier])[0] == ["cpu"] * 3
    assert path.choose([barrier, (0.38, 0.0), barrier])[0] == ["cpu", "ane", "cpu"]


def test_ties_go_to_the_ane():
    assert path.choose([(0.25, 0.0)]) == (["ane"], 0.25)
    assert path.choose([CONV, RELU] * 4)[0][-1] == "ane", "the last relu costs the same on both sides"


def test_refused_ops_never_land_on_the_ane_and_nothing_is_fine_too():
    assert path.choose([(9.0, None), (9.0, 0.0), (9.0, None)])[0] == ["cpu", "ane", "cpu"]
    assert path.choose([]) == ([], 0.0)


def test_segments():
    assert path.count_segments(["cpu", "ane", "ane", "cpu"]) == (3, 2)
    assert path.count_segments([]) == (0, 0)

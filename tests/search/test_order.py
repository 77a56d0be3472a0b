"""Which cell next, and when to stop: on made-up figures, where the optimum is known."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ane_sweep.search.order import Asked, Band, Predicted, front

WIDTH = 1.5


def bands(estimates):
    return {key: Band(value / WIDTH, value, value * WIDTH) for key, value in estimates.items()}


def tried(order, truth):
    """Keys in the order in which they were tried."""
    open_, found = set(truth), []
    while (key := order.next(open_)) is not None:
        open_.discard(key)
        found.append(key)
        order.tell(key, truth[key], (-truth[key],))
    return found


def by_latency(key, latency_ms):
    return (-latency_ms,)


@given(st.lists(st.tuples(st.floats(0.1, 1000), st.floats(1 / WIDTH, WIDTH)), min_size=1, max_size=40))
def test_where_the_bands_hold_the_optimum_is_found(cells):
    truth = {str(n): value for n, (value, _) in enumerate(cells)}
    order = tried(Predicted(bands({str(n): v * wrong for n, (v, wrong) in enumerate(cells)}), by_latency), truth)
    assert min(truth.values()) == min(truth[key] for key in order)


def test_where_the_bands_hold_most_cells_are_never_tried():
    truth = {str(n): 1.1**n for n in range(60)}
    assert len(tried(Predicted(bands(truth), by_latency), truth)) < 10


@pytest.mark.parametrize("seed", range(12))
def test_a_predictor_that_is_wrong_costs_trials_and_not_the_optimum(seed):
    chance = random.Random(seed)
    truth = {str(n): 5 ** chance.random() for n in range(52)}
    wrong = list(truth.values())
    chance.shuffle(wrong)
    order = tried(Predicted(bands(dict(zip(truth, wrong))), by_latency), truth)
    assert min(truth, key=truth.get) in order
    assert len(order) > len(tried(Predicted(bands(truth), by_latency), truth))


def test_of_several_objectives_what_is_known_already_counts():
    sizes, truth = {"a": 10.0, "b": 10.0, "c": 5.0}, {"a": 1.0, "b": 4.0, "c": 3.0}
    order = Predicted(bands(truth), lambda key, latency_ms: (-latency_ms, -sizes[key]))
    open_ = set(truth)
    found = []
    while (key := order.next(open_)) is not None:
        open_.discard(key)
        found.append(key)
        order.tell(key, truth[key], (-truth[key], -sizes[key]))
    assert found == ["a", "c"], "b is no smaller than a and cannot be faster; c may be slower, but is smaller"


@pytest.mark.parametrize("objectives", [1, 2])
def test_optuna_asks_for_every_open_cell_once_and_alike_for_a_seed(objectives):
    cells = {f"{a}{b}": {"a": a, "b": b} for a in "xyz" for b in "12"}

    def walk():
        order, open_, found = Asked(cells, objectives, seed=3), set(cells) - {"x1"}, []
        while (key := order.next(open_)) is not None:
            open_.discard(key)
            found.append(key)
            order.tell(key, 1.0, None if key == "y2" else (float(len(found)),) * objectives)
        return found

    assert sorted(walk()) == sorted(set(cells) - {"x1"}) and walk() == walk()


def test_the_front_is_what_no_other_beats():
    assert front({"a": (1.0, 2.0), "b": (2.0, 1.0), "c": (1.0, 1.0), "d": (1.0, 2.0)}) == ["a", "b", "d"]

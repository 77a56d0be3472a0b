"""What the bench of `best` says, on the product that it kept: nothing runs."""

import pytest

from ane_sweep.search.order import Predicted
from tests.bench import search


@pytest.fixture(scope="module")
def kept():
    """(latencies of the whole product, the cells within the limits, the best of these)"""
    cells = {search.name_of(cell): cell for cell in search.kept()["product"]}
    truth = {name: cell["latency_ms"] for name, cell in cells.items()}
    fits = [name for name, cell in cells.items() if all(one.holds(cell[one.figure]) for one in search.GOAL.limits)]
    return truth, fits, min(fits, key=truth.__getitem__)


@pytest.mark.parametrize("seed", search.SEEDS)
def test_shuffled_estimates_end_at_the_optimum_and_cost_more_timings(kept, seed):
    truth, fits, best = kept
    walks = [
        search.walked(Predicted(bands, lambda key, ms: (-ms,)), fits, truth, fits)
        for bands in (search.guessed(truth, seed), search.shuffled(truth, fits, seed))
    ]
    assert all(best in walk for walk in walks)
    assert len(walks[0]) < len(walks[1]) <= len(fits) < len(truth)


def test_what_ran_whole_and_what_is_kept_are_of_one_matrix(kept):
    truth, fits, _ = kept
    for one in search.kept()["whole"]:
        assert one["cells"] == len(truth) == 60 and search.name_of(one["best"]) in fits
        assert {search.name_of(cell) for cell in one["timed"]} == set(fits), (
            "where nothing predicts, all that may win are timed"
        )


def test_a_piece_that_has_run_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "ane_sweep", lambda *_: pytest.fail("it has run"))
    for name in ("product", *(f"whole-{seed}" for seed in search.WHOLE)):
        (tmp_path / f"{name}.json").write_text('{"cells": []}')
    assert search.pieces(tmp_path) == {"product": [], "whole": [{"cells": []}] * len(search.WHOLE)}

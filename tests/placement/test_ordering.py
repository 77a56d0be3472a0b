"""The words for how sure an order of two estimates is, held against the published pairs that they were counted on."""

import json
import math
from typing import get_args

import pytest

from ane_sweep.placement import latency, ordering
from tests.proof.placement import pairs, tables


@pytest.fixture(scope="module")
def counted():
    return pairs.pairs()


@pytest.mark.slow
@pytest.mark.ci
def test_the_kept_counts_and_ratios_are_what_the_pairs_say(counted):
    kept = json.loads(ordering.FILE.read_text(encoding="utf-8"))
    assert kept["rules"] == json.loads(json.dumps(pairs.rules(counted))) and kept["no_order"] == pairs.NO_ORDER
    assert set(kept["rules"]) == set(get_args(ordering.Difference))


@pytest.mark.slow
@pytest.mark.ci
def test_sure_is_right_in_19_of_20_held_out_pairs_and_likely_in_3_of_4(counted):
    said = [(ordering.how_sure(pair.ratio, pair.kind), pair) for pair in counted if pair.kind != "chunks"]
    right = {
        word: [pair.is_right for its, pair in said if its == word] for word in ("sure", "likely", "not told apart")
    }
    assert len(right["sure"]) > 500 and sum(right["sure"]) >= 0.95 * len(right["sure"])
    assert len(right["likely"]) > 100 and sum(right["likely"]) >= 0.75 * len(right["likely"])
    assert sum(right["not told apart"]) < 0.75 * len(right["not told apart"]), "else a word is withheld for nothing"
    for kind in pairs.KINDS:
        for bin_ in pairs.count(kind, counted):
            if bin_.pairs and ordering.how_sure(bin_.start, kind) == "sure":
                assert bin_.lower >= 0.95 and bin_.tables >= pairs.FEWEST_TABLES


@pytest.mark.slow
@pytest.mark.ci
def test_the_words_hold_for_tables_that_had_no_part_in_them(counted):
    found = pairs.left_out()
    right, count = found["sure"]
    assert count > 500 and right >= 0.95 * count
    right, count = found["likely"]
    assert count > 100 and right >= 0.75 * count


@pytest.mark.slow
@pytest.mark.ci
def test_none_of_the_24_published_pairs_is_ordered_wrong():
    found = tables.pairs(tables.said())
    assert len(found) == 24 and [pair for pair in found if pair.said == "wrong"] == []
    told = [pair for pair in found if pair.said == "right"]
    words = [ordering.how_sure(max(pair.ours) / min(pair.ours)) for pair in told]
    assert len(told) == 13 and words.count("sure") == 6


def test_equal_and_nearly_equal_estimates_are_not_told_apart():
    for kind in get_args(ordering.Difference):
        assert {ordering.how_sure(ratio, kind) for ratio in (1.0, 1.05, 1.09)} == {"not told apart"}
    assert [ordering.how_sure(ratio) for ratio in (1.1, 1.49, 1.5, 40.0)] == ["likely", "likely", "sure", "sure"]


def test_a_difference_without_published_pairs_is_never_sure():
    """Compressed weights have seven pairs, of which five are right; the cost of a hand-over is of the one table that has any."""
    assert ordering.how_sure(1.9, "weights") == "not told apart"
    assert ordering.how_sure(100.0, "weights") == ordering.how_sure(100.0, "chunks") == "likely"
    assert ordering.how_sure(2.1, "guess") == "not told apart" and ordering.how_sure(100.0, "guess") == "likely"
    assert ordering.count_right("sure", "chunks") == (0, 0) == ordering.count_right("sure", "weights")
    assert ordering.count_right("sure")[0] == ordering.count_right("sure")[1] > 400


@pytest.mark.slow
@pytest.mark.ci
def test_pairs_are_of_one_table_and_chip_and_in_the_order_of_their_estimates(counted):
    assert all(pair.slow.table == pair.fast.table and pair.slow.chip == pair.fast.chip for pair in counted)
    assert all(pair.ratio > 1 for pair in counted) and not any(math.isclose(pair.ratio, 1) for pair in counted)


def test_a_share_s_lower_bound_is_clopper_and_pearson_s():
    assert pairs.lower_bound(59, 59) == pytest.approx(0.05 ** (1 / 59))
    assert pairs.lower_bound(0, 5) == 0.0 and pairs.lower_bound(9, 10) == pytest.approx(0.606, abs=1e-3)


def test_a_band_twice_as_wide_is_a_guess():
    for band in latency.fitted()["bands"].values():
        assert not ordering.is_guess(band["low"], band["high"])
        assert ordering.is_guess(band["low"] / 2, band["high"] * 2)

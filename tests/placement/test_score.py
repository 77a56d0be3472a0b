"""Scores that must not get worse; the figures are in METHOD.md."""

from dataclasses import replace

import pytest

from ane_sweep.placement import costs
from ane_sweep.stats.ranks import spearman
from tests.proof.placement import cases, fit, score, tables, terms


@pytest.fixture(scope="module")
def observations():
    return fit.observations()


def test_legality_of_the_rows_that_the_rules_have_seen():
    found = score.score_legality()
    assert (found.refused_right, found.refused) == (120, 120)
    assert found.accepted_right >= found.accepted - 1
    assert [miss.split()[0] for miss in found.misses] == ["ctx/slice_dyn"]


def test_the_m4_compiler_agrees():
    agreed, count, differences = score.score_compile()
    assert agreed == count - 1 and differences[0].startswith("topk_w")


def test_placement_of_known_cases():
    found = score.score_placement(lambda case: costs.fitted())
    assert found.rows == 1423
    assert found.right + found.ties >= 1419
    assert all("the estimate is off" not in miss for miss in found.misses)


def test_placement_of_cases_left_out(observations):
    found = score.score_placement(score.left_out_rates(observations))
    assert (found.right + found.ties) / found.rows > 0.99
    assert found.always_ane_right / found.rows < 0.6


def test_estimates_of_cases_left_out(observations):
    errors = {(e.op_class, e.unit): e for e in fit.leave_one_case_out(observations)}
    for key in (
        ("memory", "ane"),
        ("memory", "cpu"),
        ("conv", "ane"),
        ("conv", "cpu"),
        ("matmul", "cpu"),
        ("add", "ane"),
    ):
        assert errors[key].median < 0.01, key


def test_shipped_rates_are_the_fit(observations):
    fresh = fit.fit(observations)
    assert costs.fitted().keys() == fresh.keys()
    for key, rate in fresh.items():
        assert costs.fitted()[key] == pytest.approx(rate, rel=1e-4), key


def test_the_planner_s_own_figures_are_met():
    for row in cases.rows("estimates.csv"):
        site = cases.build(row["case"], context=row["context"] == "ctx")[int(row["op_index"])]
        assert costs.estimate_ms(site, "cpu") == pytest.approx(float(row["bnns_ms"]), rel=0.03), row
        if row["ane_ms"]:
            assert costs.estimate_ms(site, "ane") == pytest.approx(float(row["ane_ms"]), rel=0.03), row


def test_an_unseen_regime_borrows_from_its_relatives():
    rates = {
        "conv/dense/ane": 200.0,
        "conv/dense/cpu": 10.0,
        "conv/thin/ane": 40.0,
        "memory/all/ane": 12.0,
        "memory/all/cpu": 10.0,
    }
    assert costs.find_rate(rates, "conv", "thin", "cpu") == pytest.approx(2.0)
    assert costs.find_rate(rates, "linear", "small", "cpu") is None


def test_spearman():
    assert spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 1, 2], [5, 5, 9]) == pytest.approx(1)


def test_a_median_of_two_lies_between_them(monkeypatch, observations):
    two = [replace(observations[0], case=case, ms=ms) for case, ms in (("a", 1.0), ("b", 2.0))]
    monkeypatch.setattr(costs, "estimate_ms", lambda *_: 1.0)
    assert fit.leave_one_case_out(two, refit=False)[0].median == 0.25


@pytest.mark.slow
def test_the_text_says_everything(capsys, monkeypatch):
    """Of the published tables two rows of which nothing was said: scoring them all takes seconds (tests/bench/test_estimates.py)."""
    rows = [row for row in terms.rows() if row.table.endswith("26 March 2023, DistilBERT") and row.unit == "gpu"]
    said = [tables.Said(row, 2 * row.ms, None, True, None) for row in rows]
    monkeypatch.setattr(tables, "said", lambda: said)
    monkeypatch.setattr(tables, "pairs", lambda _: [])
    assert score.main([]) == 0
    printed = capsys.readouterr().out
    for part in (
        "always-ANE",
        "each case left out",
        "rho: Spearman",
        "8 CPU, 1315 ANE",
        "band_part",
        "100%",
        "each chip left out",
    ):
        assert part in printed


def test_cases_line_up_with_the_report():
    assert sum(1 for _ in score.plans()) > 250
    built = cases.build("add", context=True)
    assert [site.type for site in built].count("conv") == 6
    assert costs.work(built[8], "ane") == 2 * 65536 * 4

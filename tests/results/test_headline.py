"""The headline latency of a cell, and the order of cells that follows from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.record import Record, Status
from ane_sweep.placement.types import Ops
from ane_sweep.results import headline, ranking
from tests.constructed import placement

CHIPS = ("a17_pro", "m4")
WITHHELD = "a17_pro: nobody has published what a program takes on its Neural Engine"


def cell(n=0, *, cpu_ms=None, estimates=None, runtime="auto", ran="reference", repeats="auto", ane=0.5, **metrics):
    """A record that asked for CHIPS in that order, with the estimates given by chip and a timing of this host."""
    figures = {"psnr_db": 70.0, "package_bytes": 1e6} | metrics
    made = [Metric(name, value, "1") for name, value in figures.items()]
    made += [Metric("latency_median_ms", cpu_ms, "ms", source=ran)] if cpu_ms is not None else []
    placed = []
    for chip in CHIPS:
        made.append(Metric("cost_share_ane", ane, "1", kind="predicted", chip=chip))
        ms = (estimates or {}).get(chip)
        placed.append(placement("predicted", chip, Ops(5, 0, 5, 10), not_estimated=None if ms else WITHHELD))
        for end, factor in (("", 1.0), ("_low", 0.6), ("_high", 1.9)) if ms else ():
            made.append(Metric(f"latency{end}_ms", ms * factor, "ms", kind="estimated", chip=chip))
    return Record(
        sweep="s", cell_key=f"{n:064x}", status=Status.OK,
        cell={"model": "net", "runtime": runtime, "latency": {"repeats": repeats}},
        realised={"runtime": ran}, metrics=made, placement=placed,
    )  # fmt: skip


BOTH = {"a17_pro": 3.0, "m4": 2.0}


@pytest.mark.parametrize(
    ("record", "ms", "kind", "check"),
    [
        (cell(cpu_ms=35.0, estimates=BOTH), 3.0, "estimated", True),
        (cell(cpu_ms=35.0, estimates=BOTH, repeats=4), 3.0, "estimated", False),
        (cell(cpu_ms=35.0, estimates=BOTH, runtime="reference"), 35.0, "measured", False),
        (cell(cpu_ms=0.7, estimates=BOTH, ran="coreml"), 0.7, "measured", False),
        (cell(estimates=BOTH), 3.0, "estimated", False),  # latency=off
        (cell(cpu_ms=35.0, estimates={"m4": 2.0}), None, None, True),  # another chip's estimate answers nothing
    ],
    ids=["auto", "repeats", "by name", "coreml", "not timed", "withheld"],
)
def test_headline_is_of_core_ml_or_of_the_chip_shipped_for_and_a_cpu_time_only_where_its_runtime_was_named(
    record, ms, kind, check
):
    found = headline.headline(record)
    assert (found and found.ms, found and found.kind) == (ms, kind)
    assert headline.is_check(record) is check
    assert headline.explain_missing(record) == (None if ms else WITHHELD.removeprefix("a17_pro: "))
    if kind == "estimated":
        assert (found.chip, found.low, found.high) == ("a17_pro", pytest.approx(0.6 * ms), pytest.approx(1.9 * ms))


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_a_cpu_time_never_orders_cells_that_have_estimates(cpu, chip):
    records = [
        cell(n, cpu_ms=1.0 + ms, estimates={"a17_pro": 1.0 + 2.0 * est}) for n, (ms, est) in enumerate(zip(cpu, chip))
    ]
    first, _ = ranking.choose_best(records, headline.HEADLINE, {})
    assert first == chip.index(0)
    assert len(ranking.group_by_work(records)) == 1


def test_cells_of_different_kinds_of_latency_are_not_weighed_against_each_other():
    estimated, named, withheld = (
        cell(0, estimates=BOTH),
        cell(1, cpu_ms=1.0, estimates=BOTH, runtime="reference"),
        cell(2),
    )
    assert ranking.group_by_work([estimated, named, withheld]) == [[0], [1], [2]]


def test_cells_without_a_latency_are_ranked_by_their_share_of_the_cost_on_the_ane():
    records = [
        cell(n, cpu_ms=float(n + 1), ane=share, psnr_db=db)
        for n, (share, db) in enumerate([(0.4, 80), (0.9, 60), (0.9, 70)])
    ]
    winners = ranking.choose_winners(records, [0, 1, 2], {})
    assert {goal: winner.cell for winner in winners for goal in winner.goals} == {
        "most on the ANE": 2, "smallest": 2, "most accurate": 0,
    }  # fmt: skip
    assert winners[0].tied == [1]
    assert ranking.find_front(records) == [0, 2]
    assert all(fact["headline_ms"] is None for fact in ranking.list_facts(records) if "headline_ms" in fact)


@pytest.mark.parametrize("ratio", [1.0, 1.02, 5.0])
def test_estimates_tie_by_the_rule_of_published_pairs_and_not_by_their_bands(ratio):
    one, other = cell(0, estimates={"a17_pro": 1.0}), cell(1, estimates={"a17_pro": ratio})
    assert ranking.are_told_apart(one, other) is (ranking.how_sure(one, other) != "not told apart")
    assert ranking.are_told_apart(one, other) is (ratio == 5.0)


def test_a_limit_on_the_latency_is_one_on_the_headline():
    records = [cell(n, cpu_ms=1.0, estimates={"a17_pro": ms}) for n, ms in enumerate((1.0, 4.0))]
    for limit in (2.0, 0.5):
        first, _ = ranking.choose_best(records, "psnr_db", {headline.HEADLINE: limit})
        assert first == (0 if limit == 2.0 else None)

"""The answer of a page is about the headline latency: what comes first, the plots, the limits, and where this host's times stand."""

import re

import constructed
import pytest

from ane_sweep.bridge.figures import Metric, Timing
from ane_sweep.bridge.record import Status
from ane_sweep.report import document, first, off_ane, page, views
from ane_sweep.results import answer, ranking

ASKED = {"latency": {"repeats": 4}}


def off_a_mac(count: int = 12, *, estimated: bool = True, **more) -> list:
    """Records of a host without Core ML: estimates for M1, and the time of a CPU runtime that `runtime=auto` chose."""
    records = constructed.records(count, bad=False)
    for record in records:
        record.realised["runtime"], record.timings = "reference", [Timing(0, 9.0, samples_ms=[9.0] * 4)]
        record.cell |= more
        if not estimated:
            record.metrics = [metric for metric in record.metrics if metric.kind != "estimated"]
            record.metrics.append(Metric("cost_share_ane", record.cell["seq_len"] / 600, "1", "predicted", "", "m1"))
            for entry in record.placed("predicted"):
                object.__setattr__(entry, "not_estimated", "m1: nothing like it is published")
    return records


def titles(records) -> list[str]:
    return [section.title for section in document.sections(document.Sweep(records))]


def plots(section) -> list[str]:
    return [svg for block in section.blocks if hasattr(block, "legend") for svg, _ in block.items]


def test_the_answer_stands_first_on_the_page_and_in_markdown():
    records = off_a_mac()
    said = answer.answer(records)
    html, marked = (make(document.Sweep(records)) for make in (page.as_html, page.as_markdown))
    assert said[0].startswith("Ship gpt2 ") and said[0].split(":")[0] in marked.split("## ")[1]
    assert html.index("class=answer") < html.index('id="asked"') < html.index('<table class="cells">')
    assert re.search(r"Its package: <code>ane-sweep get [^<]+</code>", html)


def test_a_sweep_of_one_cell_and_one_without_a_finished_cell_have_the_answer_too():
    for records in (off_a_mac(1), constructed.records(1, bad=False)):
        assert titles(records)[0] == "Which cell to ship"
    refused = constructed.records(12)[5:6]
    assert answer.answer(refused)[0] in page.as_markdown(document.Sweep(refused)).replace("\\", "")


def test_sections_follow_the_questions_of_a_reader():
    found = titles(off_a_mac(12, **ASKED))
    order = ["Which cell to ship", "Cells", "Doubts", "Latency by axis", "Why ops stay off the ANE", "Accuracy"]
    order += ["Estimated latency", "Times on this host", "Provenance"]
    assert [title for title in found if title in order] == order


def test_the_time_of_a_check_is_in_no_plot_and_no_section():
    assert not {"Times on this host", "Inside a cell"} & set(titles(off_a_mac()))
    html = page.as_html(document.Sweep(off_a_mac()))
    assert "says nothing about the Neural Engine" not in html and "latency ms" not in html


@pytest.mark.slow
def test_times_of_this_host_stand_last_where_they_were_asked_for_and_first_where_the_runtime_was_named():
    found = titles(off_a_mac(12, **ASKED))
    assert found.index("Times on this host") > found.index("Estimated latency") and "Inside a cell" not in found
    named = off_a_mac(12, runtime="reference")
    assert "Times on this host" in titles(named)
    assert "Inside a cell" not in titles(named)
    assert "latency ms (measured)" in plots(document.sections(document.Sweep(named))[0])[0]


@pytest.mark.slow
def test_plots_and_limits_name_the_headline():
    sweep = document.Sweep(off_a_mac())
    shown, by_axis = (s for s in document.sections(sweep) if s.title in ("Which cell to ship", "Latency by axis"))
    assert all("M1 ms (estimated)" in svg for svg in [*plots(shown), *plots(by_axis)])
    label = r"M1 ms \(estimated\) ≤ <input type=\"number\" step=\"any\" data-limit=\"headline_ms\">"
    assert re.search(label, page.as_html(sweep))
    record = sweep.records[0]
    spot = next(spot for spot in views.spots(sweep.cells, range(12)) if spot.cell == 0)
    estimates = [record.value(f"latency{end}_ms", "estimated", "m1") for end in ("", "_low", "_high")]
    assert [spot.x, spot.low, spot.high] == estimates != [record.value("latency_median_ms")] * 3


def test_cells_without_a_latency_are_plotted_and_ranked_by_their_share_of_the_cost():
    sweep = document.Sweep(off_a_mac(estimated=False))
    (shown,) = (s for s in document.sections(sweep) if s.title == "Which cell to ship")
    assert all("ANE share of the cost %" in svg for svg in plots(shown))
    best = first.rows(sweep.cells, ranking.group_by_work(sweep.records))[0]
    share = max(record.value("cost_share_ane", "predicted", "m1") for record in sweep.records)
    assert sweep.records[best.cell].value("cost_share_ane", "predicted", "m1") == share
    assert best.goals.startswith("most on the ANE")


@pytest.mark.parametrize(
    ("factor", "said"),
    [(1.0001, "the estimates differ by less than what published pairs tell apart"), (40.0, "before .*: sure$")],
)
def test_the_fastest_says_with_which_cell_it_ties_or_how_sure_its_lead_is(factor, said):
    records = off_a_mac(2)
    records[1].cell = records[0].cell | {"variant": "split_einsum"}
    for metric, same in zip(records[1].metrics, records[0].metrics):
        ms = same.value * (factor if same.kind == "estimated" else 1)
        records[1].metrics[records[1].metrics.index(metric)] = Metric(
            same.name, ms, same.unit, same.kind, "", same.chip
        )
    cells = views.Cells(records)
    row = first.rows(cells, ranking.group_by_work(records))[0]
    assert row.cell == 0 and re.search(said, row.note)


def test_the_colour_names_the_chips_whose_lowest_share_it_shows():
    assert first._name_shares(off_a_mac(2)) == "predicted, M1 or planned by Core ML"
    one = off_a_mac(1)[0]
    one.placement = [constructed.placement("predicted", chip, one.placement[0].ops) for chip in ("m4", "m1", "a17_pro")]
    assert first._name_shares([one]) == "predicted, lowest over M4, M1, A17 Pro"


@pytest.mark.slow
@pytest.mark.ci
def test_a_time_under_core_ml_stays_inside_a_cell():
    records = constructed.records(12, bad=False)
    assert "Inside a cell" in titles(records) and "Times on this host" not in titles(records)


def test_advice_says_one_figure_of_the_chip_shipped_for_and_a_range_where_cells_differ():
    ops = constructed.records(1)[0].placement[0].ops
    records = off_a_mac(3)
    for record, ms in zip(records, ("0.13 of 1.35", "0.12 of 1.21", "0.2 of 2")):
        said = {
            "m4": f"2 ops: cast; saves about {ms} ms",
            "m1": "2 ops: cast",
            "a17_pro": "2 ops: cast; saves about 9 of 18 ms",
        }
        record.placement = [
            constructed.placement("predicted", chip, ops, advice=[f"cast it (outside) ({words})"])
            for chip, words in said.items()
        ]
    one = off_ane.advice(views.Cells(records[:1]))
    assert [text.partition(" [")[0] for text in one] == [
        "cast it (outside) (2 ops: cast; saves about 0.13 of 1.35 ms on M4)"
    ]
    several = off_ane.advice(views.Cells(records))
    assert [text.partition(" [")[0] for text in several] == [
        "cast it (outside) (2 ops: cast; saves about 0.12 to 0.2 ms on M4)"
    ]


def test_what_all_cells_have_in_doubt_is_said_once_and_no_status_is_cut():
    records = off_a_mac(3)
    for record in records:
        record.status, record.reason = Status.DEGRADED, "processes disagree"
    sweep = document.Sweep(records)
    (cells,) = (s for s in document.sections(sweep) if s.title == "Cells")
    assert cells.blocks[0].doubts == [[1]] * 3 and not any("processes" in b.text for b in cells.blocks[1:])
    assert 'title="processes disagree">degraded <a href="#doubt-1">' in page.as_html(sweep)
    assert {row.note.partition(". ")[0] for row in first.rows(sweep.cells, ranking.group_by_work(sweep.records))} == {
        "in doubt, as every cell"
    }

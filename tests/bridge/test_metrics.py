"""One more metric is one row of the registry (ane_sweep/bridge/metrics.py) and the stage that returns it."""

import pytest
from constructed import records

from ane_sweep.api.sweeps import Sweep
from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.metrics import EVERYWHERE, METRICS, RANKED, MetricSpec
from ane_sweep.compare import judge
from ane_sweep.compare.match import Matched, Pair
from ane_sweep.report import document, first, page, screen, table, views
from ane_sweep.search import goal
from ane_sweep.tracking import figures

SPARKLE = MetricSpec(name="sparkle", unit="lm", better=1, digits=2, score=True, least_share=0.1, shows=EVERYWHERE)


@pytest.fixture
def sparkling(monkeypatch):
    """Return three records with one more metric, of which one row tells everything."""
    monkeypatch.setitem(METRICS, "sparkle", SPARKLE)
    cells = records(3)
    for number, record in enumerate(cells):
        record.metrics.append(Metric("sparkle", 1.5 + number, "lm"))
    return cells


def test_the_table_and_the_terminal_show_a_new_metric(sparkling):
    columns = {column.head: column.cells for column in table.list_columns(sparkling)}
    assert columns["sparkle lm"] == ["1.50", "2.50", "3.50"]
    assert "sparkle lm" in screen.as_text(sparkling, width=300)


def test_the_report_shows_a_new_metric_and_takes_limits_on_it(sparkling):
    assert "sparkle lm" in [column.head for column in first._columns(sparkling)]
    facts = first.facts(views.Cells(sparkling))
    assert facts["figures"]["sparkle"] == ["sparkle", "lm", 1]
    assert [cell["sparkle"] for cell in facts["choice"]] == [1.5, 2.5, 3.5][: len(facts["choice"])]
    assert 'data-limit="sparkle"' in page.as_html(document.Sweep(sparkling))


def test_a_record_without_a_new_metric_is_shown_beside_those_that_have_it(sparkling):
    del sparkling[0].metrics[-1]
    assert sparkling[0].value("sparkle") is None
    columns = {column.head: column.cells for column in table.list_columns(sparkling)}
    assert columns["sparkle lm"] == ["-", "2.50", "3.50"]
    assert 'data-limit="sparkle"' in page.as_html(document.Sweep(sparkling))


def test_mlflow_has_a_new_metric_among_the_first_figures(sparkling):
    assert ("measured.sparkle", 1.5, 0) in figures.cell_metrics(sparkling[0])


def test_the_frame_has_a_new_metric(sparkling, tmp_path):
    assert list(Sweep(tmp_path, sparkling).frame()["measured.sparkle"]) == [1.5, 2.5, 3.5]


def test_best_takes_a_new_metric_as_a_limit_and_as_an_aim(sparkling):
    wanted, rest = goal.parse(["sparkle>=2", "maximise=sparkle"])
    assert rest == [] and str(wanted.broken(sparkling[0])) == "sparkle>=2" and wanted.broken(sparkling[1]) is None
    assert wanted.gains(sparkling[2]) == (3.5,)


def test_compare_reports_a_change_of_a_new_metric(sparkling):
    pair = Pair("cell", sparkling[1], sparkling[0])
    changes = judge.judge(Matched([pair], [], [])).changes
    assert ("less accurate", "sparkle: 2.5 -> 1.5 lm") in [(change.bucket, change.text) for change in changes]


def test_a_metric_without_a_row_is_tracked_behind_the_others():
    (record,) = records(1)
    record.metrics.append(Metric("glitter", 2.0))
    assert "rest.measured.glitter" in [name for name, _, _ in figures.cell_metrics(record)]


@pytest.mark.parametrize("spec", METRICS.values(), ids=METRICS)
def test_a_row_says_which_way_is_better_wherever_that_decides(spec):
    decides = spec.score or spec.name in RANKED or {"report", "compare"} & set(spec.shows)
    assert spec.better or not decides


def test_a_fallback_fills_a_column_that_differs_from_it_in_some_row():
    one, other = records(2)
    one.metrics.append(Metric("psnr_worst_db", one.value("psnr_db"), "dB"))
    assert METRICS["psnr_worst_db"].column not in [column.head for column in table.list_columns([one, other])]
    one.metrics[-1] = Metric("psnr_worst_db", 20.0, "dB")
    (found,) = [column for column in table.list_columns([one, other]) if column.head == "PSNR dB, worst output"]
    assert found.cells == ["20.0", METRICS["psnr_db"].text(other.value("psnr_db"))]

"""A sweep of more cells than a page shows: which ones it has, and that what it says of all is of all."""

import re

import constructed
import pytest

from ane_sweep.bridge.record import Status
from ane_sweep.report import document, first, page
from ane_sweep.results import ranking


@pytest.fixture
def some(monkeypatch):
    """A page takes in 40 cells of 90."""
    records = constructed.records(90)
    monkeypatch.setattr(ranking.select_shown_cells, "__defaults__", (40,))
    return document.Sweep(records)


@pytest.mark.slow
def test_a_page_has_so_many_rows_and_points_and_no_more_and_says_so(some):
    html = page.as_html(some)
    assert html.count("<tr data-cell=") >= 40 and len(some.shown.records) == 40
    assert {int(n) for n in re.findall(r'data-cell="?(\d+)', html)} <= set(range(40))
    assert "40 of 90 cells" in html and "records.jsonl beside this page" in html
    assert "40 of 90 cells" not in page.as_html(document.Sweep(some.records[:40]))


@pytest.mark.slow
def test_what_it_says_of_all_cells_is_of_all(some):
    assert sum(count for _, count in document.head(some)["counts"]) == 90
    failures = next(section for section in document.sections(some) if section.title == "Failures by stage")
    bad = [record for record in some.records if record.status not in (Status.OK, Status.DEGRADED)]
    assert sum(int(row[1]) for row in failures.blocks[0].rows) == len(bad)


def test_the_best_of_the_page_are_the_best_of_the_sweep(some):
    def fastest(cells):
        works = ranking.group_by_work(cells.records)
        return {cells.records[row.cell].cell_key for row in first.rows(cells, works) if "fastest" in row.goals}

    assert fastest(some.shown) == fastest(some.cells)


def test_every_kind_of_trouble_is_among_those_shown(some):
    kinds = {record.status for record in some.records}
    assert kinds <= {record.status for record in some.shown.records}


@pytest.mark.slow
@pytest.mark.ci
def test_doubts_stand_at_the_row_that_they_are_about(some):
    cells = next(section for section in document.sections(some) if section.title == "Cells")
    grid = next(block for block in cells.blocks if hasattr(block, "doubts"))
    told = document.with_cells(some.records, some.runs)
    for row, place in zip(grid.doubts, some.places, strict=True):
        assert all(place in told[number - 1].cells for number in row)

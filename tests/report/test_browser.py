"""The report in a real browser."""

import constructed
import pytest

from ane_sweep.report import document, page

pytestmark = [pytest.mark.slow, pytest.mark.ci]


def test_the_page_opens_without_a_complaint(tmp_path, opened, screenshots):
    path = tmp_path / "report.html"
    path.write_text(page.as_html(document.Sweep(constructed.records(12))), encoding="utf-8")
    with opened(path) as tab:
        assert tab.title().startswith("ane-sweep: sweep")
        tab.screenshot(path=screenshots / "report.png")

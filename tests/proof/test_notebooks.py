"""The list of the notebooks: every paragraph that reports a result has a row, every command plans, and the topic is the list."""

import re
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path

import constructed
import pytest

from ane_sweep.__main__ import main
from ane_sweep.planner import config
from ane_sweep.planner.settle import plan_for
from ane_sweep.report import beside
from ane_sweep.report.views import Cells
from ane_sweep.results import published
from ane_sweep.store.cache import open_store
from tests.proof import notebooks

ROWS = notebooks.rows()
PLANNED = [row for row in ROWS if not (row.verb or row.needs or "./" in row.command)]


@pytest.fixture(scope="module")
def requests():
    """Row -> what it asks for. One composer serves them all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "Composer", cache(config.Composer))
        return {row: config.load(row.words) for row in PLANNED}


def test_every_paragraph_that_reports_a_result_has_its_rows():
    """Of all paragraphs of the notes, in order; one without a row says why it has none."""
    paragraphs = notebooks.paragraphs()
    assert {one.note for one in paragraphs} == set(notebooks.SOURCES) and len(paragraphs) == 129
    for (note, place), those in groupby(paragraphs, lambda one: (one.note, one.place)):
        numbers = [one.nth for one in those]
        assert numbers == list(range(1, len(numbers) + 1)), (note, place)
    assert not [one for one in paragraphs if bool(one.rows) == bool(one.otherwise)]
    named = {(one.note, name) for one in paragraphs for name in one.rows}
    assert named == {(row.note, row.paragraph) for row in ROWS} and len(named) == len(ROWS) == 112


def test_what_is_not_planned_here_says_why():
    left = [row for row in ROWS if row not in PLANNED]
    assert not [row for row in left if row.needs]
    assert [row.verb or row.paragraph for row in left] == [
        "generate", "devices", "chunk", "classify", "What is this model anyway?", "generate", "generate", "generate", "hwx", "hwx",
    ]  # fmt: skip


@pytest.mark.slow
def test_every_command_plans(requests, tmp_path):
    with open_store(tmp_path) as store:
        for row, request in requests.items():
            plan = plan_for(request, store, tmp_path, to_show=True)
            assert plan.chains or row.hardware in ("a Mac's GPU", "an iPhone: device=usb"), (row.command, plan.refused)
            known = ("torch_mps needs a Mac", "needs target=", "device=usb")
            assert all(any(word in why for word in known) for why in plan.refused.values()), (row.command, plan.refused)


@pytest.mark.slow
@pytest.mark.ci
def test_the_topic_is_the_list(requests):
    said = notebooks.text(lambda row: requests[row].cells if row in requests else [])
    assert notebooks.TOPIC.read_text() == said, "python -m tests.proof.notebooks writes it"


@pytest.mark.slow
@pytest.mark.ci
def test_published_figures_of_the_notes_stand_beside_some_row(requests):
    shown = {id(one) for row, request in requests.items() for one in notebooks.beside(row, request.cells)}
    notes = re.compile(r"NOTES 2023-(03|04-0|04-10)|anentropic|ml-ane-transformers README")
    wanted = [one for one in published.rows() if notes.search(one["source"]) and one.request and one.figures]
    left = [one for one in wanted if id(one) not in shown]
    assert [(one["source"], one.request) for one in left] == []


@pytest.mark.slow
@pytest.mark.ci
def test_every_figure_that_the_topic_claims_is_in_the_report(requests):
    """Of cells as they would be recorded, by what `runtime` names, or by the reference runtime."""
    plain = constructed.records(1, bad=False)[0]
    for row, request in requests.items():
        cells = [
            replace(
                plain, cell=cell.as_dict(), realised={"runtime": {"auto": "reference"}.get(cell.runtime, cell.runtime)}
            )
            for cell in request.cells
        ]
        grid = beside.grid(Cells(cells))
        for one in notebooks.beside(row, request.cells):
            assert grid is not None, row.command
            said = " ".join(" ".join(line) for line in grid.rows if line[0] == one["source"])
            for name, value in one.figures.items():
                assert published.figure_text(value) in re.split(r"[ (,]", said), (row.command, name, value)


@pytest.mark.slow
@pytest.mark.ci
def test_the_report_shows_no_figure_of_pytorch_beside_core_ml_and_the_topic_claims_none(requests):
    row = next(row for row in ROWS if row.paragraph == "introduction")
    assert {one["compute_units"] for one in notebooks.beside(row, requests[row].cells)} == {""}


def test_the_row_of_the_compiler_shows_what_it_was_called_with(capsys):
    row = next(row for row in ROWS if "call to the compiler" in row.paragraph)
    assert row.verb == "hwx"
    assert main(["hwx", str(Path(__file__).parents[1] / "hwx" / "samples" / "conv.hwx")]) == 0
    said = capsys.readouterr().out
    assert "zin_ane_compiler v" in said and "--fdram-allocator" in said


@pytest.mark.slow
@pytest.mark.ci
def test_what_was_measured_on_a_phone_is_asked_of_a_phone(requests):
    rows = [row for row in requests if row.hardware == "an iPhone: device=usb"]
    assert len(rows) == 3
    for row in rows:
        assert {(cell.device, cell.target) for cell in requests[row].cells} == {("usb", "iOS16")}


def test_help_shows_it(capsys):
    assert main(["help", "notebooks"]) == 0
    assert "ane-sweep +sweep=notebooks/ladder" in capsys.readouterr().out

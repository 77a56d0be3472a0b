"""The notebooks' commands in miniature: all of them run here, and each prints its published figures beside ours."""

import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from ane_sweep import engine
from ane_sweep.__main__ import main
from ane_sweep.bridge.record import Status
from ane_sweep.planner import config, options
from tests.proof import miniature, notebooks

HWX = Path(__file__).parents[1] / "hwx" / "samples" / "conv.hwx"
pytestmark = pytest.mark.timeout(1800)  # all rows are one sweep of some minutes, which the first test waits for
VERBS = [row for row in notebooks.rows() if row.verb]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Where the commands are typed: with a checkpoint and a compiled program beside them."""
    import transformers

    folder = tmp_path_factory.mktemp("here")
    shutil.copy(HWX, folder / "model.hwx")
    arch = options.shipped("model", "tiny-distilbert")["arch"]
    made = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(**arch))
    made.save_pretrained(folder / "finetuned")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(config, "Composer", cache(config.Composer))
        yield folder


@pytest.fixture(scope="module")
def requests(here):
    return miniature.requests(miniature.options(here / "small"))


@pytest.fixture(scope="module")
def full(requests):
    """The cells that each row asks for as it stands."""
    return {row: config.load(row.words).cells for row in requests}


@pytest.fixture(scope="module")
def found(requests, here):
    """Cell -> its record: all rows as one sweep, so that cells and their tasks are shared."""
    _, records = engine.sweep(miniature.together(requests.values()), here / "outputs", ["miniature"])
    return {record.cell_key: record for record in records}


@pytest.mark.slow
def test_every_row_runs_here(found, requests, here):
    assert {*requests, *VERBS} == set(notebooks.rows())
    for row, request in requests.items():
        records = [found[cell.key] for cell in request.cells]
        refused = [one for one in records if one.status is Status.REFUSED]
        assert all(one.cell["runtime"] == "torch_mps" for one in refused), row.command
        ran = [one for one in records if one not in refused]
        assert ran and {one.status for one in ran} <= {Status.OK, Status.DEGRADED}, (
            row.command,
            [one.status for one in ran],
        )


@pytest.mark.slow
def test_every_row_prints_its_published_figures_beside_ours(found, full, requests):
    for row, request in requests.items():
        lines = list(miniature.said(row, miniature.records_of(request, found)))[1:]
        run = {"auto", *(cell.runtime for cell in full[row])} - {"torch_mps"}
        figures = [one for one in notebooks.beside(row, full[row]) if one.figures]
        wanted = [one for one in figures if one.request.get("runtime", "auto") in run]
        assert len(lines) >= len(wanted), row.command


@pytest.mark.slow
@pytest.mark.parametrize("row", VERBS, ids=lambda row: row.paragraph)
def test_every_other_verb_runs_here(row, here, found, requests, capsys):
    if "./model.mlpackage" in row.command:
        deep = next(one for one in found.values() if one.cell["chunks"] == 12 and one.status is Status.OK)
        made = next(Path(one.path) for one in deep.artifacts if one.name.startswith("model.mlpackage/"))
        shutil.copytree(next(path for path in made.parents if path.name == "model.mlpackage"), "model.mlpackage")
    out = [f"out={here / 'outputs'}"] if row.verb in miniature.TALKS else []
    code = main([row.verb, *miniature.words(row, here / "small"), *out])
    said = capsys.readouterr()
    assert code in (0, 1) and len(said.out + said.err) > 100, row.command  # times stand on stderr


@pytest.mark.slow
def test_a_command_in_miniature_keeps_its_axes_and_lengths(full, requests):
    """As many cells as the row itself asks for, and the same on every axis but where a size is made small."""
    small = {"throughput", "cuts", "latency", "limits", "model_options", "weights", "size", "limits_for", "device"}
    for row, request in requests.items():
        assert len(full[row]) == len(request.cells), row.command
        for one, other in zip(full[row], request.cells):
            ours, theirs = other.as_dict(), one.as_dict()
            assert {key: ours[key] for key in ours if key not in small} == {
                key: theirs[key] for key in theirs if key not in small
            }
            assert re.sub("tiny", one.size, other.size) == one.size

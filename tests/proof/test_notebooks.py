"""The list of the notebooks: every paragraph that reports a result has a row, every command plans, and the topic is the list."""

import re
import shlex
from functools import cache

import pytest

from ane_sweep import engine
from ane_sweep.__main__ import main
from ane_sweep.bridge.record import Status
from ane_sweep.planner import config
from ane_sweep.planner.settle import plan_for
from ane_sweep.proof import notebooks
from ane_sweep.results import published
from ane_sweep.store.cache import open_store

ROWS = notebooks.rows()
PLANNED = [row for row in ROWS if not (row.verb or row.needs or "./" in row.command)]
PARAGRAPHS = {  # of each note, headings or days whose paragraphs report results; how many experiments they hold
    "more-ane-transformers": {
        "25 March 2023": 7, "26 March 2023": 9, "28 March 2023": 3, "29 March 2023": 4, "30 March 2023": 4, "31 March 2023": 5,
        "1 April 2023": 7, "2 April 2023": 1, "4 April 2023": 5, "5 April 2023": 3, "6 April 2023": 2, "7 April 2023": 3,
        "9 April 2023": 1, "10 April 2023": 2,
    },
    "experiments-coreml-ane-distilbert": {
        "introduction": 2, "Is it really running on the ANE?": 1, "first update": 1, "second update": 2, "third update": 3,
        "fourth update": 1, "Further questions": 3, "Faster PyTorch?": 1, "What is this model anyway?": 2,
    },
    "experiments-coreml-gpt2": {
        "Chapter 1": 1, "Chapter 2": 3, "Chapter 3": 2, "Export to CoreML?": 1, "Update": 4, "Other resources": 1,
    },
    "coreml102-model-surgery": {
        "Static shapes": 1, "Float input": 1, "Bigger the better": 1, "Nevermind": 1, "Stupidify tasks": 1,
        "Pad last axis to a multiple of 64": 1,
    },
    "tinygrad-ane": {"plist exploration": 2, "Model Flow; call to the compiler": 1},
}  # fmt: skip
RUN = [  # the handful that CI runs: a row's command, and what makes it small
    ("25 March 2023, 5", "model=tiny-gpt2"), ("28 March 2023, 1", "model=ladder-tiny"), ("Further questions, 3", "model=tiny-distilbert"),
]  # fmt: skip
SMALL = [
    "weights=random",
    "seq_len=16",
    "latency.repeats=1",
    "latency.samples=2",
    "latency.warmup=1",
    "gate.wait_s=0",
    "tracking.enabled=false",
]


@pytest.fixture(scope="module")
def requests():
    """Row -> what it asks for. One composer serves them all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "Composer", cache(config.Composer))
        return {row: config.load(row.words) for row in PLANNED}


def test_every_paragraph_that_reports_a_result_has_its_rows():
    for note, paragraphs in PARAGRAPHS.items():
        where = [re.split("[,;:]", row.paragraph)[0] for row in ROWS if row.note == note]
        counted = {name: where.count(re.split("[,;:]", name)[0]) for name in paragraphs}
        assert counted == paragraphs
    assert len(ROWS) == sum(sum(paragraphs.values()) for paragraphs in PARAGRAPHS.values()) == 93


def test_what_is_not_planned_here_says_why():
    left = [row for row in ROWS if row not in PLANNED]
    assert not [row for row in left if row.needs]
    assert [row.command for row in left if not row.needs] == [
        "ane-sweep devices", "ane-sweep model=distilbert variant=split_einsum weights=./finetuned chips=[m1]", "ane-sweep doctor",
    ]  # fmt: skip


def test_every_command_plans(requests, tmp_path):
    with open_store(tmp_path) as store:
        for row, request in requests.items():
            plan = plan_for(request, store, tmp_path, to_show=True)
            assert plan.chains or row.hardware == "a Mac's GPU", (row.command, plan.refused)
            known = ("torch_mps needs a Mac", "needs target=", "device=usb")
            assert all(any(word in why for word in known) for why in plan.refused.values()), (row.command, plan.refused)


def test_the_topic_is_the_list(requests):
    said = notebooks.text(lambda row: requests[row].cells if row in requests else [])
    assert notebooks.TOPIC.read_text() == said, "python -m ane_sweep.proof.notebooks writes it"


def test_published_figures_of_the_notes_stand_beside_some_row(requests):
    shown = {id(one) for row, request in requests.items() for one in notebooks.beside(row, request.cells)}
    notes = re.compile(r"NOTES 2023-(03|04-0|04-10)|anentropic|ml-ane-transformers README")
    left = [one for one in published.rows() if notes.search(one["source"]) and one.request and id(one) not in shown]
    assert [(one["source"], one.request) for one in left] == []


def test_help_shows_it(capsys):
    assert main(["help", "notebooks"]) == 0
    assert "ane-sweep +sweep=notebooks/ladder" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(("paragraph", "small"), RUN)
def test_a_row_runs_in_miniature(paragraph, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (row,) = (row for row in ROWS if row.paragraph == paragraph)
    words = [word for word in shlex.split(row.command)[1:] if not word.startswith(("model=", "seq_len=", "weights="))]
    request = config.load([*words, small, *SMALL])
    assert request.cells
    _, records = engine.sweep(request, tmp_path / "outputs", words)
    assert {record.status for record in records} <= {Status.OK, Status.DEGRADED}

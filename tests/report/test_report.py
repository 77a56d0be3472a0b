"""The report: one page that needs nothing else, whatever the records hold; the choice it makes; the verb."""

import io
import json
import random
import re
import xml.etree.ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import constructed
import pytest
from rich.console import Console

from ane_sweep import engine, tracking
from ane_sweep.__main__ import main
from ane_sweep.bridge.figures import Look, Metric, Timing
from ane_sweep.bridge.record import Record, StageStatus, Status, read_records, write_records
from ane_sweep.report import choice, document, drift, figures, page, table, views

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>|\"'&$x^{$"


class Page(HTMLParser):
    """Tags and their attributes, and whether every one that must be closed is."""

    VOID = {"meta", "input", "br", "img", "link", "use"}

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def thirty():
    sweep = document.Sweep(constructed.records(30), {"command": ["-m", "model=gpt2"], "started": "then"})
    return sweep, page.as_html(sweep)


def facts_of(html: str) -> dict:
    """What the page's script reads, as strictly as a browser does."""

    def refuse(word):
        raise ValueError(f"{word} is no JSON")

    text = re.search(r'<script type="application/json" id="facts">(.*?)</script>', html, re.DOTALL)[1]
    return json.loads(text, parse_constant=refuse)


def test_a_figure_that_is_not_finite_is_none(thirty):
    records = constructed.records(3)
    records[0].metrics = [replace(metric, value=float("inf")) for metric in records[0].metrics]
    assert [cell["cell"] for cell in facts_of(page.as_html(document.Sweep(records)))["choice"]] == [1, 2]
    assert len(facts_of(thirty[1])["cells"]) == 30


def test_every_section_of_a_sweep_is_there(thirty):
    parsed = Page(thirty[1])
    assert parsed.open == []
    found = [attributes["id"] for tag, attributes in parsed.tags if tag == "section"]
    assert found == [
        "doubts", "cells", "best-under-a-constraint", "latency-by-axis", "placement", "load-and-first-calls",
        "failures-by-stage", "accuracy-by-layer", "published-beside-ours", "provenance",
    ]  # fmt: skip
    assert len({attributes["id"] for _, attributes in parsed.tags if "id" in attributes}) == sum(
        "id" in attributes for _, attributes in parsed.tags
    ), "two elements share an id"


def test_the_page_asks_for_nothing(thirty):
    """No address anywhere but names of namespaces, and a policy that forbids fetching."""
    text = thirty[1]
    assert "default-src 'none'" in text
    addresses = set(re.findall(r"https?://[\w./-]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    parsed = Page(text)
    assert not [tag for tag, _ in parsed.tags if tag in ("link", "img", "iframe", "object")]
    assert not [a for _, a in parsed.tags if "src" in a or any(name.startswith("on") for name in a)]


def test_every_cell_is_in_the_table_and_on_the_plots(thirty):
    sweep, text = thirty
    parsed = Page(text)
    timed = {n for n, record in enumerate(sweep.records) if record.status == "ok"}
    rows = {int(a["data-cell"]) for tag, a in parsed.tags if tag == "tr" and "data-cell" in a}
    points = {int(a["data-cell"]) for tag, a in parsed.tags if tag == "circle"}
    assert rows == set(range(30))
    assert points - {-1} == timed


def test_what_a_record_holds_never_becomes_markup():
    records = constructed.records(6, bad=False, note=HOSTILE)
    for n, record in enumerate(records):
        record.cell["model"] = HOSTILE + str(n % 2)
        record.host["chip"] = HOSTILE
        record.weights = replace(record.weights, source=HOSTILE)
        record.placement[0] = replace(record.placement[0], chip=HOSTILE)
    records[5].status, records[5].reason = Status.FAILED, HOSTILE
    sweep = document.Sweep(records, {"command": [HOSTILE]})
    parsed = Page(page.as_html(sweep))
    assert parsed.open == []
    assert [a.get("type") for tag, a in parsed.tags if tag == "script"] == ["application/json", None]
    assert not [tag for tag, _ in parsed.tags if tag == "img"]
    assert any(HOSTILE in text for text in parsed.texts)
    marked = page.as_markdown(sweep)
    assert "<script" not in marked and "<img" not in marked


LINK, TERMINAL = "[x](javascript:alert(3))[y]: javascript:alert(4)", "\x1b]0;evil\x07\x1b[2J\r\u202e\x9b31m"


def nasty() -> document.Sweep:
    """Texts at every place of a record and of run.json that a report shows."""
    records = constructed.records(12, bad=False, weights=f"{LINK} {TERMINAL} /Users/John Doe/n https://jane:s3cret@h")
    text = records[0].cell["weights"]
    for n, record in enumerate(records):
        record.cell["model"] = f"{n % 2} {text}"
        record.cell[text] = f"{n % 3} {text}"
        record.host[text] = record.realised["texts"] = text
        record.weights = replace(record.weights, source=text)
        record.placement[0] = replace(record.placement[0], chip=text)
        record.metrics[-1] = replace(record.metrics[-1], chip=text)
        record.timings = [Timing(0, 1.0, notes=[text], gate=Look(doubts=[text]))]
    records[5].status, records[5].reason = Status.FAILED, text
    records[5].stages[0].reason, records[5].stages[1].status = text, StageStatus.UNAVAILABLE
    return document.Sweep(records, {"command": [text], "started": text})


def test_no_report_obeys_a_record_or_names_a_person():
    sweep = nasty()
    marked = page.as_markdown(sweep)
    for text in (
        page.as_html(sweep),
        marked,
        table.as_markdown(sweep.records),
        json.dumps(facts_of(page.as_html(sweep))),
    ):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]|Doe|jane|s3cret", text)
        assert "\\x1b" in text and "/Users/***/n" in text
    for text in (marked, table.as_markdown(sweep.records)):
        assert "javascript:" in text and not re.search(r"(?<!\\)\][(\[:]", text)


def test_the_terminal_obeys_no_record(capsys, tmp_path):
    records = nasty().records
    for record in records:
        record.reason = record.cell["weights"] = record.cell["model"] = TERMINAL
        record.status = Status.FAILED
    plain = table.as_text(records, width=400)
    terminal = io.StringIO()
    Console(file=terminal, width=400, color_system=None, force_terminal=True).print(table.as_table(records, 400))
    assert main(["report", f"out={tmp_path}", TERMINAL]) == 2  # no such run: the error says which
    for text in (plain, terminal.getvalue(), table.as_json(records), capsys.readouterr().err):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "\\x1b]0;evil" in plain
    assert [Record.from_dict(one) for one in json.loads(table.as_json(records))] == records, "JSON loses nothing"


def test_the_facts_of_the_page_are_the_records(thirty):
    sweep, text = thirty
    facts = facts_of(text)
    assert [cell["name"] for cell in facts["cells"]] == sweep.cells.names
    chosen = {item["cell"]: item for item in facts["choice"]}
    assert set(chosen) == set(choice.ranked(sweep.records))
    for n, item in chosen.items():
        assert item["latency_median_ms"] == sweep.records[n].value("latency_median_ms")


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_small_sweeps_have_a_report_too(count):
    sweep = document.Sweep(constructed.records(count) if count else [])
    assert Page(page.as_html(sweep)).open == []
    assert page.as_markdown(sweep)


def test_markdown_says_what_the_page_says(thirty):
    text = page.as_markdown(thirty[0])
    assert "## Failures by stage" in text and "convert ended with SIGSEGV" in text
    assert "Fastest: " in text and "| version of torch | 2.13.0 |" in text and "| texts | real |" in text
    for line in text.splitlines():
        assert not line.startswith("|") or line.endswith("|")


def test_failures_are_grouped_by_stage_with_their_reason(thirty):
    section = next(s for s in document.sections(thirty[0]) if s.title == "Failures by stage")
    rows = section.blocks[0].rows
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert sum(int(row[1]) for row in rows) == sum(r.status not in ("ok", "degraded") for r in thirty[0].records)


# The choice


def cell(latency: float, size: float, psnr: float, iqr: float = 0.0, task: str | None = None) -> Record:
    figures = {"latency_median_ms": latency, "package_bytes": size * 1e6, "psnr_db": psnr, "latency_iqr_ms": iqr}
    metrics = [Metric(name, value) for name, value in figures.items()]
    return Record(
        sweep="s",
        cell_key=f"{latency}{size}",
        cell={},
        status=Status.OK,
        metrics=metrics,
        realised={"latency_task": task},
    )


def test_the_front_is_what_nothing_beats():
    records = [cell(1, 10, 70), cell(2, 5, 70), cell(2, 10, 70), cell(9, 99, 90), cell(1, 10, 70)]
    assert choice.front(records) == [0, 1, 3, 4]


def test_the_best_under_a_constraint():
    records = [cell(1, 10, 50), cell(2, 5, 70), cell(3, 4, 80)]
    never = lambda one, other: False  # noqa: E731
    assert choice.best(records, "latency_median_ms", {}, never) == (0, [])
    assert choice.best(records, "latency_median_ms", {"psnr_db": 60}, never) == (1, [])
    assert choice.best(records, "psnr_db", {"package_bytes": 5}, never) == (2, [])
    assert choice.best(records, "package_bytes", {"psnr_db": 99}, never) == (None, [])


def test_cells_that_cannot_be_told_apart_stand_beside_the_best():
    records = [
        cell(1.00, 1, 50, 0.2),
        cell(1.05, 1, 50, 0.2),
        cell(2, 1, 50, 0.2),
        cell(3, 1, 50, task="t"),
        cell(4, 1, 50, task="t"),
    ]
    assert choice.best(records, "latency_median_ms", {}, choice.same_timing) == (0, [1])
    assert choice.ties(records, choice.same_timing) == {0: [1], 1: [0], 2: [], 3: [4], 4: [3]}
    assert "untested" in choice.untested(records)


def test_with_enough_processes_the_test_decides():
    """Medians so close that interquartile ranges overlap widely; only the processes' scatter tells."""
    slow, fast, alike = (cell(1, 1, 50, 9.0, task=name) for name in "abc")
    for record, shift in ((fast, 0.0), (slow, 0.1), (alike, 0.0)):
        record.timings = [Timing(n, 1.0 + shift + 0.001 * ((n * 7 + len(str(shift))) % 3)) for n in range(8)]
    assert not choice.same_timing(fast, slow)
    assert choice.same_timing(fast, alike)
    assert choice.untested([fast, slow, alike]) == ""
    fast.timings = fast.timings[:1]
    assert choice.untested([fast, slow, alike]).startswith("differences to 1 of 3 cells are untested: 1 process a side")


# Plots


def test_a_figure_scales_and_has_no_colour_of_its_own():
    cells = views.Cells(constructed.records(30, bad=False))
    svg = views.by_axis(cells, cells.axes[0])
    assert svg.startswith("<svg") and svg.rstrip().endswith("</svg>") and "width=" not in svg[:200]
    assert "var(--muted" in svg and "#0101" not in svg and "#0102" not in svg


def test_a_name_with_dollars_is_no_formula():
    assert "$x^{$" in figures.stacked([("$x^{$", {"ane": 50.0, "cpu": 50.0})], x_label="%")


def test_names_stand_beside_points_and_cover_nothing():
    drawn = random.Random(3)
    points = [(drawn.uniform(1, 5), drawn.uniform(20, 40), n, 0, 4.0, "") for n in range(24)]
    points += [(3.0, 30.0, n, 0, 4.0, "") for n in range(24, 30)]  # one place has four sides
    labels = [f"name {n}" for n in range(len(points))]
    svg = figures.scatter(points, x_label="x", y_label="y", front=[0], labels=labels, name="t")
    circles = [tuple(map(float, c)) for c in re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', svg)]
    boxes = [(x - r, y - r, x + r, y + r) for x, y, r in circles]
    words = re.findall(r'<text class="pt" data-cell="(\d+)" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)"', svg)
    assert 18 <= len(words) < 29 and len(boxes) == len(points)
    for cell, x, y, anchor in words:
        wide = 3.7 * len(labels[int(cell)])
        left = float(x) - wide * ("start", "middle", "end").index(anchor) / 2
        box = (left, float(y) - 5.7, left + wide, float(y) + 1.1)
        assert all(box[0] >= b[2] or b[0] >= box[2] or box[1] >= b[3] or b[1] >= box[3] for b in boxes), cell
        assert left > 0 and left + wide < 72 * figures.WIDTH
        boxes.append(box)
    assert 'class="pt" data-cell="0" x' not in figures.scatter(points, x_label="x", y_label="y", front=[0])


def test_cells_placed_alike_share_a_bar():
    cells = views.Cells(constructed.records(300, bad=False))
    found = views.placements(cells)
    assert [what for what, *_ in found] == ["m1 (predicted)", "m1 (planned)"]
    assert found[0][1].count("%</text>") == 0 and found[0][2] == 0


# The worst cell


def test_the_worst_cell_is_looked_into_unasked_only_when_small_and_under_its_gate():
    records = constructed.records(4, bad=False)
    assert not drift.called_for(records)
    worst = drift.worst_cell(records)
    records[worst].reason = "PSNR 30.0 dB is under the 50 dB that fp16 should reach"
    assert drift.called_for(records)
    records[worst].metrics.insert(0, Metric("package_bytes", 1e9))
    assert not drift.called_for(records)


# The verb


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "runs" / constructed.STAMP
    write_records(folder, constructed.records(3))
    run = {
        "schema": 1,
        "stamp": constructed.STAMP,
        "plan_key": "",
        "started": "2026",
        "finished": "2026",
        "command": [],
    }
    (folder / "run.json").write_text(json.dumps(run))
    return tmp_path


def test_files_are_written_where_asked(out, capsys):
    html, markdown = out / "a.html", out / "a.md"
    assert main(["report", f"out={out}", "--html", str(html), "--markdown", str(markdown)]) == 0
    assert "<!doctype html>" in html.read_text() and markdown.read_text().startswith("# sweep")
    assert main(["report", constructed.STAMP, "--markdown", f"out={out}"]) == 0
    assert capsys.readouterr().out.count("| gpt2 |") == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--html"], "--html: expected one argument"),
        (["--html", "/nowhere/at/all.html"], "cannot be written"),
        (["--drift"], "no longer holds"),
        (["--pdf"], "unknown here"),
    ],
)
def test_a_wrong_word_is_a_sentence(out, capsys, words, said):
    assert main(["report", f"out={out}", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("broken", ["report", "drift", "tracking", "all"])
def test_what_follows_the_records_is_done_whatever_else_of_it_fails(out, monkeypatch, capsys, broken):
    """By a mistake of ours, not only by an error that was foreseen."""
    folder, done = out / "runs" / constructed.STAMP, []

    def step(name):
        def act(*_, **__):
            done.append(name)
            if broken in (name, "all"):
                raise ZeroDivisionError("a mistake")

        return act

    monkeypatch.setattr(page, "write", step("report"))
    monkeypatch.setattr(drift, "look_where_called_for", step("drift"))
    monkeypatch.setattr(tracking, "log_sweep", step("tracking"))
    monkeypatch.setattr(engine, "links", lambda *_: [])
    settings = {"enabled": True, "uri": None, "experiment": "e", "ui": None}
    engine.write_report(folder, read_records(folder), None, engine.TERMINAL)
    engine.track(folder, settings, engine.TERMINAL)
    assert done == ["drift", "report", "tracking"]
    said = capsys.readouterr().err
    assert said.count("ZeroDivisionError: a mistake. Next: ane-sweep") == (3 if broken == "all" else 1)


def test_what_a_run_folder_holds_then(out):
    folder = out / "runs" / constructed.STAMP
    page.write(folder)
    assert {p.name for p in folder.iterdir()} == {"records.jsonl", "run.json", "report.html", "report.md", "figures"}
    drawn = sorted((folder / "figures").glob("*.svg"))
    assert drawn and all(xml.etree.ElementTree.parse(path).getroot().tag.endswith("}svg") for path in drawn)


def test_html_is_made_by_templates_alone():
    """They escape what they are given; `safe` stands where the text is ours."""
    folder = Path(page.__file__).parent
    markup = re.compile(r"html import escape|<(?!svg|rect|metadata)\w+[ >]")
    assert not [path.name for path in folder.rglob("*.py") if markup.search(path.read_text())]
    safe = [found for path in folder.rglob("*.j2") for found in re.findall(r"(\w+) \| safe", path.read_text())]
    assert sorted(safe) == ["script", "style", "svg"]

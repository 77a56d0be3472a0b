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
from ane_sweep.bridge import metrics
from ane_sweep.bridge.figures import Look, Metric, Timing
from ane_sweep.bridge.record import Record, StageStatus, Status, read_records, write_records
from ane_sweep.bridge.settings import TrackingSettings
from ane_sweep.placement import chips, sources
from ane_sweep.placement import choice as unit_choice
from ane_sweep.placement.types import Gate, Ops, Part, Shares
from ane_sweep.report import blocks as parts
from ane_sweep.report import document, drift, estimates, figures, first, page, picture, screen, table, views
from ane_sweep.results import headline, ranking

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


@pytest.mark.slow
@pytest.mark.ci
def test_a_figure_that_is_not_finite_is_none(thirty):
    records = constructed.records(3)
    records[0].metrics = [replace(metric, value=float("inf")) for metric in records[0].metrics]
    assert [cell["cell"] for cell in facts_of(page.as_html(document.Sweep(records)))["choice"]] == [1, 2]
    assert len(facts_of(thirty[1])["cells"]) == 30


@pytest.mark.slow
@pytest.mark.ci
def test_every_section_of_a_sweep_is_there(thirty):
    parsed = Page(thirty[1])
    assert parsed.open == []
    found = [attributes["id"] for tag, attributes in parsed.tags if tag == "section"]
    assert found == [
        "which-cell-to-ship", "cells", "failures-by-stage", "doubts", "latency-by-axis", "why-ops-stay-off-the-ane",
        "placement", "accuracy", "inside-a-cell", "estimated-latency", "published-beside-ours", "provenance",
    ]  # fmt: skip
    assert len({attributes["id"] for _, attributes in parsed.tags if "id" in attributes}) == sum(
        "id" in attributes for _, attributes in parsed.tags
    ), "two elements share an id"


@pytest.mark.slow
@pytest.mark.ci
def test_the_page_asks_for_nothing(thirty):
    """No address anywhere but names of namespaces and links to the sources of estimates, and a policy that forbids fetching."""
    text = thirty[1]
    assert "default-src 'none'" in text
    linked = set(re.findall(r'<a href="(https://[^"]+)" rel="noreferrer">', text))
    assert linked == set(sources.list_sources(chips.published()["m1"]).values())
    addresses = set(re.findall(r"https?://[\w./-]+", text)) - linked
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    parsed = Page(text)
    assert not [tag for tag, _ in parsed.tags if tag in ("link", "img", "iframe", "object")]
    assert not [a for _, a in parsed.tags if "src" in a or any(name.startswith("on") for name in a)]


@pytest.mark.slow
@pytest.mark.ci
def test_every_cell_is_in_the_table_and_on_the_plots(thirty):
    sweep, text = thirty
    parsed = Page(text)
    timed = {n for n, record in enumerate(sweep.records) if record.status == "ok"}
    rows = {int(a["data-cell"]) for tag, a in parsed.tags if tag == "tr" and "data-cell" in a}
    points = {int(a["data-cell"]) for tag, a in parsed.tags if tag == "circle"}
    assert rows == set(range(30))
    assert points - {-1} == timed


@pytest.mark.slow
@pytest.mark.ci
def test_what_a_record_holds_never_becomes_markup():
    records = constructed.records(6, bad=False, note=HOSTILE)
    for n, record in enumerate(records):
        record.cell["model"] = HOSTILE + str(n % 2)
        record.host["chip"] = HOSTILE
        record.weights = replace(record.weights, source=HOSTILE)
        why = replace(record.placement[0].reasons[0], reason=HOSTILE, op_types={HOSTILE: 1}, source=HOSTILE)
        gated = Part(
            None, Ops(1, 0, 0, 1), Shares(1, 0, 0), 1, 0, gates=[Gate(HOSTILE, "risk", HOSTILE, HOSTILE, "", "")]
        )
        record.placement[0] = replace(
            record.placement[0], chip=HOSTILE, reasons=[why], advice=[HOSTILE], chunks=[gated]
        )
        record.metrics = [replace(m, chip=HOSTILE, source=HOSTILE) if m.chip else m for m in record.metrics]
        record.timings = [Timing(0, 1.0, notes=[HOSTILE])]
    records[4].status, records[4].reason = Status.DEGRADED, HOSTILE
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


@pytest.mark.slow
@pytest.mark.ci
def test_no_report_obeys_a_record_or_names_a_person():
    sweep = nasty()
    marked = page.as_markdown(sweep)
    for text in (
        page.as_html(sweep),
        marked,
        screen.as_markdown(sweep.records),
        json.dumps(facts_of(page.as_html(sweep))),
    ):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]|Doe|jane|s3cret", text)
        assert "\\x1b" in text and "/Users/***/n" in text
    for text in (marked, screen.as_markdown(sweep.records)):
        assert "javascript:" in text and not re.search(r"(?<!\\)\][(\[:]", text)


def test_the_terminal_obeys_no_record(capsys, tmp_path):
    records = nasty().records
    for record in records:
        record.reason = record.cell["weights"] = record.cell["model"] = TERMINAL
        record.status = Status.FAILED
    plain = screen.as_text(records, width=400)
    terminal = io.StringIO()
    Console(file=terminal, width=400, color_system=None, force_terminal=True).print(screen.as_table(records, 400))
    assert main(["report", f"out={tmp_path}", TERMINAL]) == 2  # no such run: the error says which
    for text in (plain, terminal.getvalue(), screen.as_json(records), capsys.readouterr().err):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "\\x1b]0;evil" in plain
    assert [Record.from_dict(one) for one in json.loads(screen.as_json(records))] == records, "JSON loses nothing"


@pytest.mark.slow
@pytest.mark.ci
def test_the_facts_of_the_page_are_the_records(thirty):
    sweep, text = thirty
    facts = facts_of(text)
    assert [cell["name"] for cell in facts["cells"]] == sweep.cells.names
    chosen = {item["cell"]: item for item in facts["choice"]}
    assert set(chosen) == set(ranking.select_ranked(sweep.records))
    for n, item in chosen.items():
        assert item["headline_ms"] == sweep.records[n].value("latency_median_ms"), "Core ML timed it"


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_small_sweeps_have_a_report_too(count):
    sweep = document.Sweep(constructed.records(count) if count else [])
    assert Page(page.as_html(sweep)).open == []
    assert page.as_markdown(sweep)


@pytest.mark.slow
@pytest.mark.ci
def test_markdown_says_what_the_page_says(thirty):
    text = page.as_markdown(thirty[0])
    assert "## Failures by stage" in text and "convert ended with SIGSEGV" in text
    assert "| fastest" in text and "| version of torch | 2.13.0 |" in text and "| texts | real |" in text
    for line in text.splitlines():
        assert not line.startswith("|") or line.endswith("|")


@pytest.mark.slow
@pytest.mark.ci
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
        realised={"runtime": "coreml", "latency_task": task},
    )


def test_the_front_is_what_nothing_beats():
    records = [cell(1, 10, 70), cell(2, 5, 70), cell(2, 10, 70), cell(9, 99, 90), cell(1, 10, 70)]
    assert ranking.find_front(records) == [0, 1, 3, 4]


def test_a_score_that_all_cells_have_is_weighed_with_the_rest_and_the_page_says_so():
    records = [cell(1, 10, 70), cell(2, 10, 70), cell(3, 10, 70)]
    for record, score in zip(records, (5.0, 4.0, 4.5)):
        assert ranking.find_front(records) == [0]
        record.metrics.append(Metric("perplexity", score))
    assert ranking.find_front(records) == [0, 1], "slower, but better at its task; the third is neither"
    found = ranking.choose_winners(records, [0, 1, 2], {})
    assert [(one.cell, one.goals) for one in found] == [
        (0, ["fastest", "smallest", "most accurate"]),
        (1, ["lowest perplexity"]),
    ]
    assert ranking.choose_best(records, "package_bytes", {"perplexity": 4.6})[0] == 1
    sweep = document.Sweep(records)
    assert "dark ring: no sound cell beats it in speed, size, PSNR and score together" in page.as_html(sweep)
    assert "| lowest perplexity |" in page.as_markdown(sweep)
    del records[0].metrics[-1]
    assert ranking.choose_goals(records, [0, 1, 2]) == metrics.RANKED, "what one has not is weighed of none"
    assert ranking.choose_best(records, "package_bytes", {"perplexity": 9})[0] == 1, "and is no figure"


def test_a_winner_says_which_others_are_as_good_as_it_is():
    """Cells of one program differ in latency alone: to be called the smallest says nothing there."""
    records = [cell(1, 10, 70), cell(2, 10, 70), cell(3, 10, 80)]
    found = ranking.choose_winners(records, [0, 1, 2], {})
    assert [one.words() for one in found] == ["fastest, smallest (all alike)", "most accurate"]
    found = ranking.choose_winners([*records[:2], cell(3, 12, 60)], [0, 1, 2], {})
    assert [one.words() for one in found] == ["fastest, smallest (1 more alike), most accurate (1 more alike)"]
    assert "fastest, smallest (all alike)" in page.as_markdown(document.Sweep(records))


def test_the_best_under_a_constraint():
    records = [cell(1, 10, 50), cell(2, 5, 70), cell(3, 4, 80)]
    assert ranking.choose_best(records, "headline_ms", {}) == (0, [])
    assert ranking.choose_best(records, "headline_ms", {"psnr_db": 60}) == (1, [])
    assert ranking.choose_best(records, "psnr_db", {"package_bytes": 5}) == (2, [])
    assert ranking.choose_best(records, "package_bytes", {"psnr_db": 99}) == (None, [])


def test_cells_that_cannot_be_told_apart_stand_beside_the_best():
    records = [
        cell(1.00, 1, 50, 0.2),
        cell(1.05, 1, 50, 0.2),
        cell(2, 1, 50, 0.2),
        cell(3, 1, 50, task="t"),
        cell(4, 1, 50, task="t"),
    ]
    assert ranking.choose_best(records, "headline_ms", {}) == (0, [1])
    assert ranking.find_ties(records) == {0: [1], 1: [0], 2: [], 3: [4], 4: [3]}
    assert "untested" in ranking.describe_untested(records)


def test_with_enough_processes_the_test_decides():
    """Medians so close that interquartile ranges overlap widely; only the processes' scatter tells."""
    slow, fast, alike = (cell(1, 1, 50, 9.0, task=name) for name in "abc")
    for record, shift in ((fast, 0.0), (slow, 0.1), (alike, 0.0)):
        record.timings = [Timing(n, 1.0 + shift + 0.001 * ((n * 7 + len(str(shift))) % 3)) for n in range(8)]
    assert ranking.are_told_apart(fast, slow)
    assert not ranking.are_told_apart(fast, alike)
    assert ranking.describe_untested([fast, slow, alike]) == ""
    fast.timings = fast.timings[:1]
    assert ranking.describe_untested([fast, slow, alike]).startswith(
        "differences to 1 of 3 cells are untested: 1 process a side"
    )


def constructed_work(*cells: Record, model: str = "m", status: Status = Status.OK) -> list[Record]:
    for record in cells:
        record.cell, record.status = {"model": model}, status
    return list(cells)


def test_what_two_workers_of_a_fleet_timed_is_weighed_apart():
    records = constructed_work(cell(9, 10, 70), cell(8, 9, 71))
    assert ranking.group_by_work(records) == [[0, 1]]
    for record, name in zip(records, ("m4-a", "m4-b")):
        record.host = {**record.host, "worker": name}
    assert ranking.group_by_work(records) == [[0], [1]]


def test_a_cell_in_doubt_wins_only_where_no_sound_one_keeps_to_the_limits_and_never_unmarked():
    records = constructed_work(cell(9, 10, 70), cell(8, 9, 71)) + constructed_work(
        cell(1, 1, 90), status=Status.DEGRADED
    )
    records[2].reason = "IQR 8.53 ms exceeds the median of 1.16 ms"
    for goal in metrics.RANKED:
        assert ranking.choose_best(records, goal, {})[0] == 1
    assert ranking.find_front(records) == [1]
    assert ranking.choose_best(records, "headline_ms", {"headline_ms": 2})[0] == 2
    records[2].cell = {"model": "m", "variant": "doubtful"}
    cells = views.Cells(records)
    assert [row.sound for row in first.rows(cells, ranking.group_by_work(records))] == [True]
    (row,) = first.rows(cells, ranking.group_by_work(records), {"headline_ms": 2})
    assert not row.sound and row.note == f"in doubt: {records[2].reason}"


def test_cells_of_different_models_lengths_runtimes_and_chips_are_never_weighed_against_each_other():
    records = [cell(n + 1.0, 10, 70) for n in range(10)]
    for n, record in enumerate(records):
        record.cell = {"model": "ab"[n % 2], "seq_len": 64 if n < 8 else 512}
        record.realised["runtime"] = record.cell["runtime"] = "coreml" if n < 6 else "reference"
        record.host["chip"] = "m1" if n < 4 else "m4"
    assert ranking.group_by_work(records) == [[0, 2], [1, 3], [4], [5], [6], [7], [8], [9]]
    names = views.work_names(views.Cells(records), ranking.group_by_work(records))
    assert len(set(names)) == len(names)
    assert [row.cell for row in first.rows(views.Cells(records), ranking.group_by_work(records))] == [
        0,
        1,
        4,
        5,
        6,
        7,
        8,
        9,
    ]


def test_the_share_on_the_neural_engine_is_a_limit_of_the_chip_that_takes_least():
    records = constructed_work(cell(1, 10, 70), cell(2, 10, 70))
    at = {"kind": "predicted", "segments": 1, "transitions": 0}
    records[0].placement = [
        constructed.placement(chip=c, ops=Ops(100 - n, 0, n, 100), **at) for c, n in (("m1", 5), ("m4", 99))
    ]
    records[1].placement = [constructed.placement(chip="m4", ops=Ops(20, 0, 80, 100), **at)]
    assert ranking.compute_ane_shares(records[0]) == {"m1": 5, "m4": 99}
    found = [ranking.choose_best(records, "headline_ms", {"ane": least})[0] for least in (0, 50, 90)]
    assert found == [0, 1, None]


# What records hold and no table had


@pytest.mark.slow
@pytest.mark.ci
def test_every_reason_why_ops_stay_off_the_ane_is_on_the_page_and_in_markdown(thirty):
    sweep, html = thirty
    for text in (page.as_markdown(sweep), " ".join(Page(html).texts)):
        assert "reads fp32: the ANE computes in fp16" in text and "convert with precision=fp16" in text
    section = next(s for s in document.sections(sweep) if s.title == "Why ops stay off the ANE")
    rows = section.blocks[2].rows
    assert [row[0] for row in rows] == ["reads fp32: the ANE computes in fp16"] * 2
    assert {row[4].rpartition("(")[2] for row in rows} == {"predicted)", "planned)"}
    assert rows[0][1:3] == ["24 to 620", "3.9 to 100.0"] or rows[1][1:3] == ["24 to 620", "3.9 to 100.0"]


@pytest.mark.slow
@pytest.mark.ci
def test_estimates_have_their_band_and_say_that_nothing_was_measured(thirty):
    sweep, _ = thirty
    record = sweep.records[0]
    at = record.value("latency_ms", "estimated", "m1")
    text = table.estimate_text(record, "m1")
    assert text == f"{at:.3g} ({record.value('latency_low_ms', 'estimated', 'm1'):.2g} to {2.0 * at / 0.7:.2g})"
    marked = page.as_markdown(sweep)
    assert text in marked and "m1 ms (estimated: low to high)" in marked and "nothing was measured" in marked
    assert "ANE cost % (predicted)" in marked
    record.metrics = [metric for metric in record.metrics if metric.kind != "estimated"]
    assert table.estimate_text(record, "m1") == "-"


def test_a_cell_without_an_estimate_says_why_below_the_table_and_in_the_report():
    records = constructed.records(4, bad=False, seed=7)
    for record in records:
        record.metrics = [metric for metric in record.metrics if metric.name != "latency_median_ms"]  # no Mac
    assert table.list_not_estimated(records) == [] and "not estimated" not in screen.as_text(records, 400)
    for record in records[:2]:
        for entry in record.placed("predicted"):
            object.__setattr__(entry, "not_estimated", f"{entry.chip}: of CPUs only two have figures")
            object.__setattr__(entry, "choice", "the GPU is slower")
    (line,) = table.list_not_estimated(records)
    assert line.startswith("not estimated for M1") and line.endswith("2 of 4 cells: of CPUs only two have figures")
    assert line in screen.as_text(records, 400)
    section = estimates.section(views.Cells(records))
    assert section.blocks[1].items == [line, "all units: the GPU is slower"]


def test_the_page_says_how_far_to_trust_an_estimate_and_links_what_it_rests_on():
    records = constructed.records(4, bad=False, seed=7)
    blocks = estimates.section(views.Cells(records)).blocks
    first, second = (block.text for block in blocks if isinstance(block, parts.Para))
    assert "Of 197 published latencies" in first and "nine in ten were 0.62 to 1.9 times the estimate" in first
    assert "sure from 1.5 times on (491 of 491 " in second and "likely from 1.1 (78 of 85)" in second
    basis = blocks[-1]
    assert basis.fold.startswith("how the estimates came about") and basis.items == ["m1: constructed"]
    assert basis.links == [sources.list_sources(chips.published()["m1"])]
    records[3].metrics = [replace(m, source="m1: other") if m.kind == "estimated" else m for m in records[3].metrics]
    again = estimates.section(views.Cells(records)).blocks[-1]
    assert again.items == ["m1: constructed (this of most cells; 1 more in records.jsonl)"]
    assert "; ANEMLL: https://github.com/Anemll/anemll-bench" in parts.markdown(again)


def test_every_source_of_a_chip_and_every_published_table_has_an_address():
    named = {name for chip in chips.published().values() for name in chip.sources}
    tables = {name for names in sources._tables().values() for name in names}
    assert [name for name in named | tables if not sources._address(name).startswith("https://")] == []
    assert sources._address("HERE") == "" and len(tables) > 30


def test_that_the_choice_against_the_gpu_is_unknown_is_said_once_for_all_chips():
    records = constructed.records(4, bad=False, seed=7)
    for chip, record in zip(("m1", "m4", "a17_pro", "m4"), records):
        for entry in record.placed("predicted"):
            object.__setattr__(entry, "chip", chip)
            object.__setattr__(entry, "choice", unit_choice.main([], chips.get(chip)).reason)
    (line,) = [line for line in estimates.section(views.Cells(records)).blocks[1].items if "GPU" in line]
    assert line.startswith("all units: we cannot tell whether Core ML would choose the GPU on m1, m4, a17_pro: ")


def test_only_settings_that_differ_from_the_defaults_stand_above_and_the_rest_is_folded():
    records = constructed.records(4, bad=False, seed=7, target="iOS18")
    for record in records:
        record.cell |= {"target": "iOS18", "seed": 7, "latency": {"samples": 5, "warmup": 3}}
    told = first.lines(records, table.split_settings(records)[0])
    assert told[-1] == "all cells: seq_len=32 seed=7 latency.samples=5"
    folded = document.sections(document.Sweep(records))[-1].blocks[1]
    assert folded.fold and ["target", "iOS18"] in folded.rows and ["latency.warmup", "3"] in folded.rows


def test_a_doubt_stands_beside_the_cells_that_it_is_about_and_once_where_it_is_about_all():
    records = constructed.records(4, bad=False)
    for record in records:
        record.timings = [Timing(0, 1.0, notes=["of all"])]
    records[2].timings = [Timing(0, 1.0, notes=["of all", "of one"])]
    records[1].status, records[1].reason = Status.DEGRADED, "unstable"
    made = document.sections(document.Sweep(records))
    table = next(section for section in made if section.title == "Cells")
    told = next(section for section in made if section.title == "Doubts").blocks[0]
    assert [text.partition(" (")[0] for text in told.items] == ["degraded, 1 cell", "of all", "of one"]
    assert table.blocks[0].doubts == [[], [1], [3], []]
    assert [block.text for block in table.blocks[1:]] == ["Of every cell: doubt 2.", document.COST]


# Plots


def test_a_figure_scales_and_has_no_colour_of_its_own():
    cells = views.Cells(constructed.records(30, bad=False))
    svg = views.by_axis(cells, cells.axes[0])
    assert svg.startswith("<svg") and svg.rstrip().endswith("</svg>") and "width=" not in svg[:200]
    assert "var(--muted" in svg and "#0101" not in svg and "#0102" not in svg


def test_a_name_with_dollars_is_no_formula():
    assert "$x^{$" in figures.stacked([("$x^{$", {"ane": 50.0, "cpu": 50.0})], x_label="%")


def spot(cell: int, ms: float, db: float, **more) -> picture.Spot:
    given = {"low": ms, "high": ms, "ane": 95.0, "radius": 4.0, "sound": True, "front": False, "words": "w", **more}
    return picture.Spot(cell, ms, db, label=f"name {cell}", **given)


def test_names_stand_beside_points_and_cover_nothing():
    drawn = random.Random(3)
    spots = [spot(n, drawn.uniform(1, 5), drawn.uniform(20, 40)) for n in range(24)]
    spots += [spot(n, 3.0, 30.0) for n in range(24, 54)]  # more in one place than there is room around it
    svg = picture.draw(spots, "t", "ms")
    circles = [tuple(map(float, c)) for c in re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', svg)]
    boxes = [(x - r, y - r, x + r, y + r) for x, y, r in circles]
    words = re.findall(r'<text class="pt" data-cell="(\d+)" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)"', svg)
    assert 20 <= len(words) < 54 and len(boxes) == len(spots)
    for cell, x, y, anchor in words:
        wide = 6.2 * len(f"name {cell}")
        left = float(x) - wide * ("start", "middle", "end").index(anchor) / 2
        box = (left, float(y) - 9.3, left + wide, float(y) + 1.7)
        assert all(box[0] >= b[2] or b[0] >= box[2] or box[1] >= b[3] or b[1] >= box[3] for b in boxes), cell
        assert left > 0 and left + wide < 72 * figures.WIDTH and box[1] >= 0
        boxes.append(box)


def ticks(svg: str) -> list[str]:
    """The words that matplotlib wrote: ticks, labels of axes, and any offset."""
    return re.findall(r"<text style=[^>]*>([^<]+)</text>", svg)


@pytest.mark.parametrize(
    "values",
    [[0.0035, 0.0040, 0.0045], [45.0071, 45.0072], [78.614, 78.631], [1e-5, 2e-5], [0.9, 400.0], [3.0], [1e5, 3e5]],
)
def test_ticks_are_few_plain_and_without_offset(values):
    svg = picture.draw([spot(n, ms, 70 + n / 1000) for n, ms in enumerate(values)], "t", "ms")
    words = [word.replace("\N{MINUS SIGN}", "-") for word in ticks(svg)]
    assert not [word for word in words if "+" in word or ("e-" in word and len(word) > 7)]
    numbers = [word for word in words if re.fullmatch(r"[-\d.,e]+", word)]
    assert 3 <= len(numbers) <= 14 and max(map(len, numbers)) <= 8, words


def test_an_axis_is_logarithmic_where_values_span_more_than_twelve_times():
    wide = picture.draw([spot(n, ms, 70) for n, ms in enumerate((0.9, 20.0, 400.0))], "t", "ms")
    near = picture.draw([spot(n, ms, 70) for n, ms in enumerate((10.0, 20.0, 30.0))], "t", "ms")
    places = [[float(x) for x in re.findall(r'cx="([\d.]+)"', svg)] for svg in (wide, near)]
    steps = [(b - a) / (c - b) for a, b, c in map(sorted, places)]
    assert 0.9 < steps[0] < 1.2 and steps[1] == pytest.approx(1, abs=0.01)


def test_the_picture_says_placement_by_colour_and_doubt_by_its_outline():
    spots = [spot(0, 1, 70), spot(1, 2, 70, ane=60.0), spot(2, 3, 70, ane=3.0), spot(3, 4, 70, ane=None, sound=False)]
    assert [picture.shade(one.ane) for one in spots] == [3, 2, 1, 0]
    assert [word for word, _ in picture.legend(spots)] == ["90 % and more", "50 to 90 %", "under 50 %", "not known"]
    paints = re.findall(r'<circle class="pt" data-cell="(\d)"[^>]*style="([^"]*)"', picture.draw(spots, "t", "ms"))
    assert [("--p" + str(3 - int(n)) in paint, "dash" in paint) for n, paint in paints] == [
        (True, n == "3") for n, _ in paints
    ]


def test_a_picture_without_a_point_above_zero_is_drawn():
    """A latency of 0, as a record from elsewhere may have it, has no place on the axis; no cell at all has none either."""
    for spots in ([], [spot(0, 0.0, 60.0, low=0.0, high=0.0)]):
        assert picture.draw(spots, "x", "ms").startswith("<svg")
    assert figures.lines([], [], x_label="x", y_label="latency ms").startswith("<svg")
    assert figures.ladder([], [], x_label="ms").startswith("<svg") and figures.stacked([], x_label="%").startswith(
        "<svg"
    )
    assert figures.spans([], x_label="ms").startswith("<svg")


def test_the_spread_is_that_of_all_samples_of_all_processes():
    record = cell(10, 1, 50, iqr=2.0)
    assert headline.spread(record) == (9.0, 11.0)
    record.timings = [Timing(0, 5.0, samples_ms=[5.0] * 10), Timing(1, 20.0, samples_ms=[20.0] * 10)]
    assert headline.spread(record) == (5.0, 20.0)
    assert headline.spread(cell(1.16, 1, 50, iqr=8.53))[0] == 0, "a bar that would leave the axis ends at its end"


@pytest.mark.slow
@pytest.mark.ci
def test_no_letter_of_a_plot_is_smaller_than_ten_pixels(thirty):
    sizes = [float(size) for size in re.findall(r"font: ?([\d.]+)px", thirty[1].partition("<main>")[2])]
    assert len(sizes) > 20 and min(sizes) >= 10 and max(sizes) <= 13


def test_cells_placed_alike_share_a_bar():
    cells = views.Cells(constructed.records(300, bad=False))
    found = views.placements(cells)
    assert [what for what, *_ in found] == ["M1 (predicted)", "M1 (planned)"]
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


@pytest.mark.slow
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
    monkeypatch.setattr(engine, "format_links", lambda *_: "")
    settings = TrackingSettings(experiment="e")
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

"""Figures in README and the topics are those that a bench said, as kept beside it."""

import re
from pathlib import Path

import constructed
import pytest

from ane_sweep.report import document, page
from tests.bench import Row, _kept, demo
from tests.bench.__main__ import NAMES, main

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *(ROOT / "ane_sweep" / "docs").glob("*.md"), *(ROOT / "tests" / "bench").glob("*.md"))
TEXTS = {path.name: path for path in PAGES}
FIGURE = re.compile(
    r"(?<![\w.,-])(\d(?:[\d,]*\d)?(?:\.\d+)?)(?=(?:(?: to| and|,|;| /| ±) \d[\d.,]*)* ?(?:ms|s|dB|MB|GB|GiB|MiB|minutes|seconds|%)(?!\w))"
)
SETTINGS = {  # limits, defaults, levels and drawn examples: nobody measured those
    "chunks.md": "2 GiB, 1 GB, 3.76 GB, 1811MB, 820 MB",
    "compare.md": "1 %, 3 %",
    "errors.md": "85 %",
    "not_done.md": "10 and 25 %, 64 MB",
    "precisions.md": "40 dB",
    "records.md": "60 MB",
    "rulings.md": "1 %, 10 %, 25 %, 200 dB",
    "runtimes.md": "30 s, 3.5 %, 10 %, 30 %, 100 %, 98 and 83, 77 and 53",
    "models.md": "30 s",
    "own_models.md": "60 MB",
    "PACKAGES.md": "60 MB",
}


def kept() -> str:
    return " ".join(
        " ".join(row.values()) for name in _kept.names() for entry in _kept.entries(name)[-1:] for row in entry["rows"]
    )


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d(?:[\d,]*\d)?(?:\.\d+)?", text))


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", TEXTS)
def test_every_figure_with_a_unit_is_kept_beside_its_bench_or_is_a_setting(name):
    text = "\n".join(
        line for line in TEXTS[name].read_text(encoding="utf-8").splitlines() if not line.startswith("    ")
    )
    text = re.sub(r"\s+", " ", text)
    without = [
        figure for figure in FIGURE.findall(text) if figure not in numbers(kept() + " " + SETTINGS.get(name, ""))
    ]
    assert without == [], (
        "say it with `python -m tests.bench NAME --keep`, or in bench/kept/by_hand.json with what was done"
    )


def test_the_topic_shows_the_newest_entry_of_every_bench():
    assert _kept.table() in TEXTS["FIGURES.md"].read_text(encoding="utf-8")


def test_what_is_kept_is_of_a_bench():
    assert set(_kept.names()) <= {*NAMES, "by_hand"}


@pytest.mark.parametrize(
    ("topic", "bench"), [("README.md", "demo"), ("precisions.md", "recipes"), ("PACKAGES.md", "packages")]
)
def test_a_table_of_a_text_says_what_its_bench_said(topic, bench):
    rows = {row["what"]: numbers(row["what"] + " " + row["ours"]) for row in _kept.entries(bench)[-1]["rows"]}
    text = TEXTS[topic].read_text(encoding="utf-8")
    for what, said in rows.items():
        begins = "> Ship" if what == demo.ANSWER else f"| {' | '.join(what.replace('chunks=', '').split())} |"
        line = next(line for line in text.splitlines() if line.startswith(begins))
        assert numbers(line) <= said, line


def test_the_table_of_readme_is_that_of_the_newest_demo():
    rows = [Row(**row) for row in _kept.entries("demo")[-1]["rows"]]
    assert [row.what for row in rows[4:]] == [demo.ANSWER] and demo.table(rows) in TEXTS["README.md"].read_text(
        encoding="utf-8"
    )


def test_keeping_the_demo_writes_readmes_table_and_the_picture_of_the_newest_report(tmp_path, monkeypatch):
    rows = [Row("minilm original chunks=2", "M4: 2.50 ms (1.2 to 5.0); 96 % of ops on the ANE; 70.1 dB; 45.0 MB")]
    taken = []
    monkeypatch.setattr(demo, "README", tmp_path / "README.md")
    monkeypatch.setattr(demo._kept, "keep", lambda name, rows: tmp_path / f"{name}.json")
    monkeypatch.setattr(demo, "_take_picture", taken.append)
    monkeypatch.setenv("ANE_SWEEP_OUT", str(tmp_path))
    for stamp in ("1", "2"):
        (tmp_path / "runs" / stamp).mkdir(parents=True)
    old = demo.table([Row("minilm original chunks=2", "M4: 9 ms (9 to 9); 9 % of ops on the ANE; 9 dB; 9 MB")])
    demo.README.write_text(f"before\n\n{old}\nafter\n")
    assert demo.keep(rows) == tmp_path / "demo.json"
    assert demo.README.read_text() == f"before\n\n{demo.table(rows)}\nafter\n"
    assert "| minilm | original | 2 | 2.50 (1.2 to 5.0) | 96 | 70.1 | 45.0 |" in demo.README.read_text()
    assert taken == [tmp_path / "runs" / "2" / "report.html"]


def test_the_band_in_readme_held_what_it_says():
    """Nine in ten of the published latencies on the Neural Engine, of tables that had no part in the fit."""
    row = next(row for row in _kept.entries("estimates")[-1]["rows"] if row["what"].startswith("Neural Engine"))
    inside, total = (
        int(found[1]) for found in (re.search(r"(\d+) inside", row["ours"]), re.search(r"(\d+) publ", row["what"]))
    )
    assert "held nine in ten of the published latencies" in " ".join(TEXTS["README.md"].read_text().split())
    assert inside / total >= 0.9


def test_estimates_are_kept_by_benches_that_say_them_anew():
    """The terms change: an estimate noted by hand would contradict the next table."""
    rows = _kept.entries("by_hand")[-1]["rows"]
    assert not [
        row for row in rows if "estimated" in row.get("ours", "") or re.search(r"ms \(.* to ", row.get("ours", ""))
    ]


@pytest.mark.slow
@pytest.mark.ci
def test_a_page_of_60_cells_is_as_large_as_the_texts_say():
    size = len(page.as_html(document.Sweep(constructed.records(60))).encode()) / 1e6
    (row,) = [row for row in _kept.entries("by_hand")[-1]["rows"] if row["what"].startswith("a report of 60 cells")]
    assert abs(float(row["ours"].removesuffix(" MB")) - size) < 0.15
    assert f"a page of 60 cells is {row['ours']}" in TEXTS["rulings.md"].read_text(encoding="utf-8")


def test_keep_adds_an_entry_and_writes_the_topic(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_kept, "FOLDER", tmp_path / "kept")
    monkeypatch.setattr(_kept, "TOPIC", tmp_path / "figures.md")
    _kept.FOLDER.mkdir()
    _kept.TOPIC.write_text("# Measured\n\n| benchmark | what |\n| --- | --- |\n| old | row |\n")
    monkeypatch.setattr("tests.bench.quiet.run", lambda: [Row("a", "1.5 s", bar="under 2 s")])
    assert main(["quiet", "--keep"]) == 0
    assert main(["quiet", "--keep"]) == 0
    assert [entry["rows"] for entry in _kept.entries("quiet")] == [
        [{"what": "a", "ours": "1.5 s", "bar": "under 2 s"}]
    ] * 2
    assert _kept.TOPIC.read_text().startswith("# Measured\n\n| benchmark | what | ane-sweep |")
    assert "| `quiet` | a | 1.5 s | | | under 2 s |" in _kept.TOPIC.read_text()
    assert "kept: " in capsys.readouterr().out

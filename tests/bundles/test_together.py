"""Files of two machines as one table and one report: a row a cell, a column a machine, and nothing tested across them."""

import json
import re
from functools import partial

import pytest
from nights import cell as timed_cell
from nights import write_run

from ane_sweep.__main__ import main
from ane_sweep.bundles import together
from ane_sweep.errors import ConfigError
from ane_sweep.report import document, views

cell = partial(timed_cell, runtime="reference")  # asked for by name: its times are headlines
M1, M2 = ({"chip": f"Apple M{n}", "system": "Darwin", "machine": "arm64"} for n in (1, 2))


@pytest.fixture
def files(tmp_path, monkeypatch) -> list[str]:
    """m1.zip and m2.zip: chunks 1 and 2 on both, 4 on the second alone; 2 is as accurate on both, 1 is not."""
    monkeypatch.chdir(tmp_path)
    runs = {
        "m1": [cell(host=M1, chunks=1), cell((9.0,) * 5, host=M1, chunks=2)],
        "m2": [cell((7.0,) * 5, host=M2, chunks=1, psnr=60.0), cell((5.0,) * 5, host=M2, chunks=2),
               cell((4.0,) * 5, host=M2, chunks=4, status="degraded", reason="why")],
    }  # fmt: skip
    for (name, records), stamp in zip(runs.items(), ("20260101-000000", "20260102-000000")):  # no two start together
        write_run(tmp_path / name, stamp, records)
        info = tmp_path / name / "runs" / stamp / "run.json"
        moment = "2026-01-01T00:00:00+00:00"
        info.write_text(json.dumps({**json.loads(info.read_text()), "started": moment, "finished": moment}))
        assert main(["export", "last", f"{name}.zip", f"out={tmp_path / name}"]) == 0
    return ["m1.zip", "m2.zip"]


def test_a_row_a_cell_and_a_column_a_machine(files, tmp_path, capsys):
    capsys.readouterr()
    assert main(["report", *files]) == 0
    said = capsys.readouterr().out
    lines = {line.split()[1]: re.split(r"\s{2,}", line) for line in said.splitlines() if line.startswith("gpt2 chunks")}
    assert [float(text) for text in lines["chunks=1"][1:5]] == [10.0, 7.0, 80.0, 60.0]
    assert lines["chunks=4"][1:3] == ["-", "4.00"] and "not measured" in lines["chunks=4"]
    assert "3 cells on 2 machines (Apple M1, Apple M2), 2 on all of them" in said
    assert "never tested as those of one host" in said and " %" not in said.partition("Each machine")[0]


def test_what_all_machines_have_alike_stands_once(files, tmp_path):
    found = together.together(tmp_path, files)
    found.rows = [row for row in found.rows if "chunks=2" in row[0]]
    grid = together.grid(found)
    assert grid.heads == ["cell", "Apple M1: ms", "Apple M2: ms", "PSNR dB", "package MB", "status"]
    assert grid.rows == [["gpt2 chunks=2", "9.00", "5.00", "80.0", "0.001", "ok"]]


def test_markdown_and_json_hold_the_same(files, capsys):
    capsys.readouterr()
    assert main(["report", *files, "--markdown"]) == 0
    assert "| cell | Apple M1: ms | Apple M2: ms |" in capsys.readouterr().out
    assert main(["report", *files, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [list(row["machines"]) for row in rows] == [["Apple M1", "Apple M2"]] * 3
    assert rows[2]["machines"]["Apple M1"] is None and rows[2]["machines"]["Apple M2"]["cell"]["chunks"] == 4


@pytest.mark.slow
@pytest.mark.ci
def test_one_report_marks_the_machines_and_ranks_within_each(files, tmp_path, capsys):
    sweep, sections = together.report(together.together(tmp_path, files))
    assert [section.title for section in sections][:2] == ["Machines", "Which cell to ship"]
    assert sweep.cells.shade == "host" and sweep.cells.shades == ["Apple M1", "Apple M2"]
    (best,) = (block for block in sections[1].blocks if hasattr(block, "several"))
    assert {row.work_name for row in best.rows} == {"Apple M1", "Apple M2"}, "no cell wins over another machine's"
    assert main(["report", *files, "--html", "both.html", "--markdown", "both.md"]) == 0
    page = (tmp_path / "both.html").read_text()
    assert 'id="machines"' in page and "Core ML" not in page and page.count("<svg") >= 2
    assert "| gpt2 chunks=2 | 9.00 | 5.00 |" in (tmp_path / "both.md").read_text()


def test_one_file_is_shown_as_a_run_is(files, capsys):
    capsys.readouterr()
    assert main(["report", "m1.zip"]) == 0
    assert "2 cells, 2 ok" in capsys.readouterr().out
    assert main(["report", "m1.zip", "--json"]) == 0 and len(json.loads(capsys.readouterr().out)) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["m1.zip", "m1.zip"], "a machine stands there twice (Apple M1, m1)"),
        (["m1.zip", "nosuch"], "no sweep nosuch"),
        (["m1.zip", "bad.zip"], "bad.zip: refused: it is no file that `ane-sweep export` wrote"),
        (["m1.zip", "m2.zip", "--drift"], "--drift runs the worst cell of a run of this machine again"),
    ],
)
def test_a_wrong_word_is_a_sentence(files, tmp_path, capsys, words, said):
    (tmp_path / "bad.zip").write_text("nothing")
    assert main(["report", *words]) == 2 and said in capsys.readouterr().err


def test_a_request_twice_on_one_machine_is_refused_with_the_way_out(files, tmp_path):
    write_run(tmp_path / "outputs", "20260102-000000", [cell(host=M2, machine=n) for n in "ab"])
    with pytest.raises(ConfigError, match=r"two of its cells are one request; choose the one .* with last:axis=value"):
        together.together(tmp_path / "outputs", ["m1.zip", "last"])


def test_a_sweep_of_one_machine_is_coloured_as_before():
    records = [cell(chunks=1), cell(chunks=2)]
    assert views.Cells(records).shade == "chunks" and document.Sweep(records).cells.shade == "chunks"

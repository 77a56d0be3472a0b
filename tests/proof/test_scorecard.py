"""The scorecard is the one that its script writes, and rows that are sent are checked."""

import csv
import json
import re

import constructed
import pytest

from ane_sweep.bridge.record import write_records
from ane_sweep.bundles import bundle
from tests.proof import scorecard, scorecard_rows, scorecard_sent


def assert_same(text, wanted):
    """Compare two texts: fractions to five digits, as a fit's last one differs between processors, the rest exactly."""
    fractions = re.compile(r"\d+\.\d+(?:e-?\d+)?")
    assert fractions.sub("#", text) == fractions.sub("#", wanted)
    numbers = [[float(found) for found in fractions.findall(of)] for of in (text, wanted)]
    assert numbers[0] == pytest.approx(numbers[1], rel=2e-5)


@pytest.mark.slow
@pytest.mark.ci
def test_the_files_are_those_that_the_script_writes():
    rows = scorecard_rows.list_rows()
    assert_same(scorecard.FILE.read_text(encoding="utf-8"), scorecard.to_csv(rows))
    assert_same(scorecard.PAGE.read_text(encoding="utf-8"), scorecard.to_page(rows))
    assert {row.kind for row in rows} == set(scorecard.PARTS)
    assert all(row.result == "none" or row.ours for row in rows)
    assert all(row.why for row in rows if row.result == "none")


GOOD = "t,m4,cpu_and_ne,1,transformer tokens=128 width=384 layers=6 heads=4 ffn=1536 mask=input,1.5,,"


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (GOOD, ""),
        (GOOD.replace("m4", "m99"), "chip=m99 is unknown"),
        (GOOD.replace("1.5", "-1"), "must be positive"),
        (GOOD.replace("1.5", "fast"), "a number"),
        (GOOD.replace("cpu_and_ne", "npu"), "compute_units=npu is unknown"),
        (GOOD.replace("transformer", "teapot"), "cannot be written"),
    ],
)
def test_rows_that_are_sent_are_checked(tmp_path, row, fault, capsys):
    file = tmp_path / "rows.csv"
    file.write_text(",".join(scorecard_sent.TEMPLATE) + "\n" + row + "\n")
    assert scorecard.main(["--check", str(file)]) == bool(fault)
    assert fault in capsys.readouterr().out


ARCH = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "vocab_size": 30522,
}


@pytest.fixture
def sent(tmp_path):
    """Return a function that exports records as a bundle, the first changed as given, the others of no chip."""

    def export(**changes):
        records = constructed.records(3, bad=False)
        for record in records:
            record.cell |= {"family": "bert", "precision": "fp16", "compute_units": "cpu_and_ne", "chunks": 1,
                            "model_options": {"arch": dict(ARCH)}}  # fmt: skip
            record.host["chip"] = "Apple M4 Pro"
        records[0].cell |= changes
        records[1].host["stand_in"] = "script"
        records[2].host["chip"] = "Apple M99"
        folder = tmp_path / "runs" / constructed.STAMP
        write_records(folder, records)
        (folder / "run.json").write_text(json.dumps({"schema": 1, "stamp": constructed.STAMP, "plan_key": "p", "command": [],
            "axes": [], "cells": 3, "started": "2026-01-02T03:00:00+00:00", "finished": "2026-01-02T03:04:05+00:00"}))  # fmt: skip
        bundle.export(folder, tmp_path / "b.zip", tmp_path)
        return tmp_path / "b.zip", records

    return export


def test_a_bundle_gives_rows_that_the_check_takes(sent, tmp_path, capsys):
    path, records = sent()
    assert scorecard.main(["--import", str(path), "--table", "mine, 2026"]) == 0
    told = capsys.readouterr()
    (row,) = csv.DictReader(told.out.splitlines())
    assert float(row["published_ms"]) == pytest.approx(records[0].value("latency_median_ms"), rel=1e-5)
    assert row["chip"] == "m4_pro" and "width=384 layers=6 heads=12 ffn=1536 mask=input vocab=30522" in row["net"]
    assert "from a stand-in" in told.err and "m99 is unknown" in told.err.lower()
    (tmp_path / "rows.csv").write_text(told.out)
    assert scorecard.main(["--check", str(tmp_path / "rows.csv")]) == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"compute_units": "all"}, "does not say which unit"),
        ({"family": "gpt2"}, "family=gpt2: write it by hand"),
        ({"precision": "p4"}, "precision=p4: write it by hand"),
        ({"model_options": {"arch": {}}}, "its sizes are not in the record"),
        ({"head": "last"}, "head differ from the default"),
    ],
)
def test_a_cell_that_is_no_row_says_why(sent, change, why, capsys):
    path, _ = sent(**change)
    assert scorecard.main(["--import", str(path), "--table", "mine"]) == 1
    assert why in capsys.readouterr().err


def test_a_file_that_is_no_bundle_is_an_error_of_the_user(tmp_path, capsys):
    (tmp_path / "x.zip").write_text("no")
    assert scorecard.main(["--import", str(tmp_path / "x.zip"), "--table", "mine"]) == 2
    assert scorecard.main(["--check", str(tmp_path / "nowhere.csv")]) == 2
    assert "nowhere.csv" in capsys.readouterr().err

"""The scorecard is the one that its script writes, and rows that are sent are checked."""

import pytest

from tests.proof import scorecard


def test_the_files_are_those_that_the_script_writes():
    rows = scorecard.list_rows()
    assert scorecard.FILE.read_text(encoding="utf-8") == scorecard.to_csv(rows)
    assert scorecard.PAGE.read_text(encoding="utf-8") == scorecard.to_page(rows)
    assert all((row["result"] == "none") == (row["ours_ms"] == "") for row in rows)


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
    file.write_text(",".join(scorecard.TEMPLATE) + "\n" + row + "\n")
    assert scorecard.main(["--check", str(file)]) == bool(fault)
    assert fault in capsys.readouterr().out

"""run.json that cannot be read: its run is left out, and a line says what to do."""

import pytest

from ane_sweep.bridge import kept
from ane_sweep.store.runs import list_runs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is damaged: its run is left out; its figures are in records.jsonl there"),
        ("[]", "is damaged: its run is left out; its figures are in records.jsonl there"),
        ('{"schema": 99}', "is of another version (schema 99, here 1): its run is left out"),
    ],
)
def test_a_run_that_is_left_out_is_told(text, said, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(kept, "_told", set())
    folder = tmp_path / "runs" / "20260101-000000"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(text)
    assert list_runs(tmp_path) == [] == list_runs(tmp_path)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("doubt: ") and said in line

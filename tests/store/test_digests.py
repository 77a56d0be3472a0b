"""Damage under runs/: a figure that was changed in an interrupted run, or in records.jsonl, is not believed."""

import hashlib
import json

import constructed
import played
import pytest

from ane_sweep.bridge import kept, record
from ane_sweep.errors import StoreError
from ane_sweep.store import files


@pytest.fixture(autouse=True)
def said(monkeypatch):
    """What is said once, from the beginning."""
    told = []
    monkeypatch.setattr(kept, "_told", set())
    monkeypatch.setattr(kept, "say", told.append)
    return told


@pytest.fixture
def stage(monkeypatch, tmp_path):
    made = played.Stage(monkeypatch, tmp_path)
    made.sweep("r")
    return made


def folder_of(stage):
    (folder,) = (stage.out / "runs" / "r" / "tasks").glob("latency-*")
    return folder


def test_a_run_goes_on_with_a_result_that_is_as_the_task_left_it(stage, said):
    assert stage.sweep("r")["latency"].result.timing.samples_ms == [1.0]
    assert stage.called == [] and said == []


@pytest.mark.parametrize("name", ["result.json", "stderr.txt", "out/weight.bin"])
def test_a_task_whose_files_were_changed_is_run_again_and_that_is_said(stage, said, name):
    path = folder_of(stage) / name
    text = path.read_bytes()
    if name == "result.json":
        changed = text.replace(b"1.0", b"9.0")
        assert changed != text
    else:
        changed = text + b"!"
    path.write_bytes(changed)
    outcome = stage.sweep("r")["latency"]
    assert stage.called == ["latency"] and outcome.result.timing.samples_ms == [1.0]
    assert said == [f"doubt: {folder_of(stage)}: {name} holds other bytes than the task left; the task is run again"]
    assert path.read_bytes() == text


@pytest.mark.parametrize("name", ["out/weight.bin", "digests.json"])
def test_a_task_of_which_a_file_is_missing_is_run_again(stage, said, name):
    (folder_of(stage) / name).unlink()
    stage.sweep("r")
    assert stage.called == ["latency"] and len(said) == 1 and name in said[0] and "is run again" in said[0]


def test_every_changed_byte_of_a_line_is_noticed(tmp_path):
    """A file that reads has the records that were written, whichever byte of it was changed."""
    made = constructed.records(2)
    path = record.write_records(tmp_path, made)
    whole, text = record.read_records(tmp_path), path.read_bytes()
    noticed = 0
    for place in range(0, len(text), 7):
        path.write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
        try:
            assert record.read_records(tmp_path) == whole, text[place - 40 : place + 40]
        except StoreError:
            noticed += 1
    assert noticed > len(text) // 7 * 0.9


def test_a_changed_figure_in_records_is_refused_with_its_line_and_the_remedy(tmp_path):
    path = record.write_records(tmp_path / "20260101-000000", constructed.records(3))
    lines = path.read_text().splitlines()
    plain = json.loads(lines[1])
    plain["metrics"][0]["value"] += 1
    path.write_text("\n".join([lines[0], json.dumps(plain), lines[2]]) + "\n")
    with pytest.raises(StoreError, match=r"line 2 of .*its digest does not fit; .*resume=20260101-000000"):
        record.read_records(path.parent)
    del plain["digest"]
    path.write_text("\n".join([lines[0], json.dumps(plain), lines[2]]) + "\n")
    with pytest.raises(StoreError, match=r"line 2 of .*its digest does not fit"):
        record.read_records(path.parent)


def test_records_of_an_earlier_version_are_read_and_that_is_said(tmp_path, said):
    path = record.write_records(tmp_path, constructed.records(3))
    plain = [json.loads(line) for line in path.read_text().splitlines()]
    for one in plain:
        del one["digest"]
    path.write_text("".join(json.dumps(one) + "\n" for one in plain))
    assert [one.to_dict() for one in record.read_records(tmp_path)] == plain
    assert said == ["doubt: records of an earlier version have no digests: damage to them would not be noticed"]


def test_a_digest_can_be_computed_by_anybody(tmp_path):
    path = record.write_records(tmp_path, constructed.records(1))
    plain = json.loads(path.read_text())
    digest = plain.pop("digest")
    assert digest == hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def test_a_disk_that_is_full_costs_the_digests_alone(stage, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "note_digests", full)
        assert stage.sweep("other")["latency"].status == "ok"
    stage.sweep("other")
    assert stage.called == ["latency"]

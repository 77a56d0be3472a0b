"""What one command leaves for the next: damaged counts as absent, is said once, and is made again."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nights import cell, write_run

from ane_sweep.bridge import disk, kept
from ane_sweep.bridge.figures import Metric, Timing
from ane_sweep.bridge.task import TaskResult
from ane_sweep.compare import history as compare_history
from ane_sweep.compare import sides
from ane_sweep.nightly.rotation import Rotation
from ane_sweep.planner import checkpoint_files
from ane_sweep.store import past as history
from ane_sweep.store import runs


@dataclass
class Inner:
    x: float


@dataclass
class Kind:
    a: int
    c: Inner | None
    b: list[str] = field(default_factory=list)
    d: dict[str, bool] = field(default_factory=dict)


DAMAGE = [b"", b"{", b"\xff\xfe{}", b"[]", b"{}", b'"text"', b"null", b"[" * 100_000, b'{"a": NaN}', b"\0" * 100]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abcdx") | st.text(), inner),
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1, "c": None}, True),
        ({"a": 1, "c": {"x": 1.5, "more": 0}, "b": ["s"], "d": {"any": True}}, True),
        ({"a": True, "c": None}, False),
        ({"a": 1}, False),
        ({"a": 1, "c": None, "b": [1]}, False),
        ({"a": 1, "c": None, "d": {"any": 1}}, False),
        ([], False),
    ],
)
def test_a_kind(value, expected):
    assert (kept.as_kind(value, Kind) is not None) is expected


@pytest.mark.slow
@pytest.mark.ci
@given(json_values)
def test_no_value_is_too_odd_for_a_kind(value):
    for kind in (Kind, TaskResult, runs.Info, list[Kind], dict[str, int]):
        kept.as_kind(value, kind)


@pytest.mark.parametrize("content", DAMAGE)
def test_damaged_counts_as_absent_and_is_said_once(tmp_path, capsys, content):
    path = tmp_path / "x.json"
    assert kept.read(path, Kind, "made again") is None and not capsys.readouterr().err
    path.write_bytes(content)
    assert kept.read(path, Kind, "made again") is None
    assert capsys.readouterr().err == f"doubt: {path} is damaged: made again\n"
    assert kept.read(path, Kind, "made again") is None and not capsys.readouterr().err


@pytest.mark.parametrize("content", DAMAGE)
def test_no_damaged_file_of_ours_ends_a_command(tmp_path, capsys, content):
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "nightly").mkdir()
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"x" * (2 << 20))
    names = ("runs/r/run.json", "nightly/state.json", "digests.json", "history.jsonl")
    for name in names:
        (tmp_path / name).write_bytes(content)
    assert runs.list_runs(tmp_path) == []
    assert Rotation.read(tmp_path).rank("k") == (1, 0, "")
    digest = checkpoint_files.file_digest(weights, tmp_path / "digests.json")
    assert len(digest) == 64 and digest in (tmp_path / "digests.json").read_text()
    assert history.read(tmp_path / "history.jsonl") == []
    said = capsys.readouterr().err
    empty = {b"{}": "digests.json", b"": "history.jsonl"}.get(content)  # that is no damage there
    assert [name for name in names if str(tmp_path / name) in said] == [name for name in names if name != empty]


def test_lines_of_another_form_leave_the_record_of_past_tasks_once(tmp_path, capsys):
    path, good = tmp_path / "history.jsonl", {"stage": "convert", "work": 1, "seconds": 2.0, "peak_bytes": None}
    past = history.Past(**good)
    odd = [{"stage": "convert"}, {**good, "work": "x"}, {**good, "seconds": [1]}, 5, {}]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in [good, *odd, good]) + '{"torn')
    assert history.read(path) == [past, past] == history.read(path)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [good, good]
    assert capsys.readouterr().err == f"doubt: {path} is damaged: 6 of its 8 lines are deleted\n"
    history.append(path, past)
    assert history.read(path) == [past] * 3 and not capsys.readouterr().err


def test_a_result_has_its_form(tmp_path):
    result = TaskResult(
        "latency", "k", "ok", metrics=[Metric("psnr_db", 70.0, "dB")], timing=Timing(1, 1.0, samples_ms=[1.0]), seconds=1.0
    )  # fmt: skip
    path = tmp_path / "result.json"
    result.write(path)
    plain = disk.read_json(path)
    assert TaskResult.read(path) == result and plain["facts"]["timing"]["median_ms"] == 1.0 and "timing" not in plain
    for name in ("stage", "key", "status"):
        disk.write_json(path, {n: v for n, v in plain.items() if n != name})
        assert TaskResult.read(path) is None
    odd = [{name: {"odd": 1}} for name in plain if name not in ("realised", "facts")]
    for change in (*odd, {"status": "good"}, {"schema": 2}, {"facts": {"timing": 5}}, {"facts": 5}, {"seconds": -1}):
        disk.write_json(path, plain | change)
        assert TaskResult.read(path) is None, change


def test_a_run_of_a_later_version_is_no_damage(tmp_path, capsys):
    (tmp_path / "runs" / "r").mkdir(parents=True)
    disk.write_json(tmp_path / "runs" / "r" / "run.json", {"schema": runs.SCHEMA + 1})
    assert runs.list_runs(tmp_path) == [] and "is of another version" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"\xff", b"{", b'{"schema": 1}\n'])
def test_one_nights_damaged_records_and_tags_end_no_other_nights_comparison(tmp_path, capsys, content):
    for stamp in ("n1", "n2", "n3"):
        write_run(tmp_path, stamp, [cell()])
        sides.tag_good(tmp_path, stamp)
    (tmp_path / "runs" / "n2" / "records.jsonl").write_bytes(content)
    assert len(sides.side(tmp_path, "good").records) == 1
    assert {one.sweep for one in sides.newest(sides.good_nights(tmp_path))} == {"n3"}
    (series,), _ = compare_history.read(tmp_path, 60)
    assert series.stamps == ["n1", "n3"]
    assert capsys.readouterr().err.count("doubt: ") == 1
    (tmp_path / "tags.json").write_text('{"good": 5}')
    assert sides.good_runs(tmp_path) == [] and "no run counts as good" in capsys.readouterr().err

"""The trace of a cell: a valid file of Chrome's format, in which chunks lie within calls and nothing lasts less than nothing."""

import json

import constructed
import pytest

from ane_sweep.bridge.record import StageOutcome, StageStatus
from ane_sweep.results import timeline

KEY, WATCH = "a" * 64, "b" * 64
SAMPLES = {
    "clock": "perf_counter", "first_s": 0.9, "warmup_s": [0.7], "steady_s": [0.65, 0.66], "loops": 1, "after_idle_s": 0.8,
    "starts": [10.0, 11.0, 12.0, 13.0, 16.0], "began": {"load": 7.0, "load_s": 2.5, "unix": 1.8e9, "pid": 77},
    "parts": {"what": "chunk", "calls": [[10.0, 10.3, 10.5, 10.9], [12.0, 12.25, 12.45, 12.65]], "left_out": 3},
}  # fmt: skip
MOMENTS = {
    "unix": 1.8e9, "pid": 78, "looks": [
        {"when": "before loading", "at": 20.0, "services": [{"name": "aned", "pid": 3, "resident_bytes": 5}],
         "memory": {"levels": {"free": 7}, "counts": {}}},
        {"at": 21.0, "power": [{"seconds": 0.1, "milliwatts": {"ane": 1500.0, "cpu": None}, "thermal_pressure": None}] * 2},
    ],
}  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """A run's folder with what a timing and an evidence pass left."""
    for stage, key, name, content in (
        ("latency", KEY, "samples.json", SAMPLES), ("evidence", WATCH, "moments.json", MOMENTS),
    ):  # fmt: skip
        folder = tmp_path / "tasks" / f"{stage}-{key[:12]}" / "out"
        folder.mkdir(parents=True)
        (folder / name).write_text(json.dumps(content))
    return tmp_path


def record(**realised):
    (made,) = constructed.records(1, bad=False)
    made.stages = [StageOutcome(s, StageStatus.OK, key=k) for s, k in (("latency", KEY), ("evidence", WATCH))]
    made.realised |= {"latency_task": KEY, **realised}
    return made


def test_every_event_is_one_that_perfetto_takes(run):
    found = json.loads(json.dumps(timeline.trace(record(), run), allow_nan=False))
    for event in found["traceEvents"]:
        assert event["ph"] in "MXCi" and type(event["pid"]) is int and type(event["tid"]) is int and event["name"]
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "C":
            assert event["args"] and all(isinstance(value, (int, float)) for value in event["args"].values())
    assert found["otherData"]["kind"] == "measured"


def test_chunks_and_what_is_between_them_fill_their_call(run):
    spans = [event for event in timeline.trace(record(), run)["traceEvents"] if event["ph"] == "X"]
    by_name = {event["name"]: event for event in spans if event["tid"] == 1}
    assert list(by_name) == ["load", "first call", "early call 1", "sample 1", "sample 2", "after a pause"]
    call = by_name["sample 1"]
    inner = [e for e in spans if e["tid"] > 1 and call["ts"] <= e["ts"] <= call["ts"] + call["dur"]]
    assert [event["name"] for event in sorted(inner, key=lambda e: e["ts"])] == ["chunk 1", "between", "chunk 2"]
    assert sum(event["dur"] for event in inner) == pytest.approx(call["dur"], abs=1)
    assert by_name["load"]["ts"] == 0 and by_name["load"]["dur"] == 2.5e6


def test_a_file_for_each_set_of_processes_and_none_where_nothing_was_left(run, tmp_path_factory):
    twice = [record(), record()]
    (path,) = timeline.write(run, twice)
    assert path == run / "timelines" / f"{KEY[:12]}.json" and json.loads(path.read_text())["traceEvents"]
    assert timeline.write(tmp_path_factory.mktemp("empty"), twice) == []


def test_samples_of_an_older_version_or_of_a_devices_clock_are_left_out(run):
    path = run / "tasks" / f"latency-{KEY[:12]}" / "out" / "samples.json"
    for odd in ({"clock": "the device's"}, {"starts": []}):
        path.write_text(json.dumps(SAMPLES | odd))
        assert {event["pid"] for event in timeline.trace(record(), run)["traceEvents"]} == {2}

"""Which run is the last one: the order in which they were made, whatever the clock and the time zone said."""

import json
from datetime import datetime, timedelta

import pytest
from nights import cell, write_run

from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.settings import read_run
from ane_sweep.compare import sides
from ane_sweep.nightly.rotation import Rotation
from ane_sweep.store import runs

SETTINGS = {
    "resume": None, "tracking": {"uri": None, "experiment": "x", "ui": None}, "nightly": {"enabled": False},
}  # fmt: skip


def order(out):
    return [run.stamp for run in runs.list_runs(out)]


@pytest.fixture
def make(tmp_path, monkeypatch):
    """A new run under a clock that says what it is told."""

    def one(clock: str):
        monkeypatch.setattr(runs, "_now", lambda: datetime.fromisoformat(clock))
        run = runs.open_run(tmp_path, Plan([], []), [], read_run(SETTINGS))
        run.finish()
        run.publish()
        return run.stamp

    return one


def test_starts_are_compared_as_instants(tmp_path):
    write_run(tmp_path, "a", [cell()], started="2026-03-01T10:00:00+09:00")  # 01:00 in Greenwich
    write_run(tmp_path, "b", [cell()], started="2026-03-01T02:00:00+00:00")
    write_run(tmp_path, "c", [cell()], started="2026-02-28T23:30:00-04:00")  # 03:30
    assert order(tmp_path) == ["c", "b", "a"]
    for stamp in "abc":
        sides.tag_good(tmp_path, stamp)
    assert sides.good_runs(tmp_path) == ["c", "b", "a"]


def test_a_run_of_the_future_is_the_last_one_only_until_the_next(tmp_path, make):
    stamps = [
        make(clock)
        for clock in (
            "2026-03-01T10:00:00+00:00",
            "2099-01-01T00:00:00+00:00",  # the clock is ahead,
            "2026-03-01T11:00:00+00:00",  # set right,
            "2026-03-01T12:00:00+00:00",
            "2020-01-01T00:00:00+00:00",  # and behind
        )
    ]
    assert order(tmp_path) == stamps[::-1] and runs.list_runs(tmp_path)[0].info["started"].startswith("2020")
    assert [stamp[:4] for stamp in stamps] == ["2026", "2099", "2026", "2026", "2020"]


def test_what_was_measured_in_the_future_is_not_measured_last_for_ever(tmp_path, make):
    first, ahead = make("2026-03-01T10:00:00+00:00"), make("2099-01-01T00:00:00+00:00")
    later = make("2026-03-02T10:00:00+00:00")
    rotation = Rotation(
        tmp_path / "nightly" / "state.json", {"x": first, "y": ahead, "z": later, "gone": "20250101-000000"}
    )
    rotation.write()
    assert sorted("zyx", key=Rotation.read(tmp_path).rank) == ["x", "y", "z"]
    assert sorted(["z", "gone"], key=Rotation.read(tmp_path).rank) == ["gone", "z"]


def test_a_run_that_does_not_say_when_it_began_is_older_than_those_that_do(tmp_path):
    write_run(tmp_path, "a", [cell()], started="2026-03-01T10:00:00+00:00")
    write_run(tmp_path, "z", [cell()], started="long ago")
    write_run(tmp_path, "y", [cell()], started="9999-12-31T23:59:59.999+00:00")  # no run could come after it
    write_run(tmp_path, "m", [cell()], started="2026-03-01T10:00:00")  # of no zone: this host's
    assert order(tmp_path)[2:] == ["z", "y"] and set(order(tmp_path)) == {"a", "m", "y", "z"}


@pytest.mark.parametrize(("hours", "stale"), [(1, False), (20, True), (-1, False), (-20, True)])
def test_an_interrupted_night_of_another_day_is_not_gone_on_with(hours, stale):
    started = (datetime.now().astimezone() - timedelta(hours=hours)).isoformat()
    run = runs.Run(None, {"started": started, "finished": None})
    assert runs._stale(run, read_run({"nightly": {"enabled": True}})) is stale
    assert not runs._stale(run, read_run({}))


@pytest.mark.parametrize("started", ["damaged", "2026-13-45T99:00:00", "", "9999-12-31T23:59:59-12:00"])
@pytest.mark.parametrize("is_nightly", [False, True])
def test_an_interrupted_run_with_a_damaged_start_costs_at_most_that_run(tmp_path, capsys, started, is_nightly):
    settings = SETTINGS | {"nightly": {"enabled": is_nightly}}
    interrupted = runs.open_run(tmp_path, Plan([], []), [], read_run(settings))
    interrupted.release()
    path = interrupted.folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"started": started}))
    run = runs.open_run(tmp_path, Plan([], []), [], read_run(settings))
    assert (run.stamp == interrupted.stamp) is not is_nightly
    assert ("`started` is no date; a new run begins" in capsys.readouterr().err) is is_nightly
    run.finish()
    assert (run.seconds is None) is not is_nightly
    run.publish()


def test_run_json_keeps_the_time_that_the_clock_said(tmp_path, make):
    make("2026-03-01T10:00:00+00:00")
    info = json.loads((next((tmp_path / "runs").iterdir()) / "run.json").read_text())
    assert info["started"] == info["finished"] == info["order"] == "2026-03-01T10:00:00.000+00:00"

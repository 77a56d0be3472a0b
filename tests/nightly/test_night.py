"""Nights: which cells first, what is good, what is kept and said; and one real night on a tiny model."""

import json
import os
from types import SimpleNamespace

import pytest
from nights import cell, slower, write_run

from ane_sweep import engine
from ane_sweep.__main__ import main
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.record import Status, read_records
from ane_sweep.bridge.settings import read_run
from ane_sweep.compare import sides
from ane_sweep.errors import StoreError
from ane_sweep.nightly import night
from ane_sweep.nightly.rotation import Rotation, choose
from ane_sweep.store import runs
from ane_sweep.store.cache import Store


def task(key, seconds=60.0, unavailable=None, stage="latency"):
    return SimpleNamespace(key=key, seconds=seconds, unavailable=unavailable, stage=stage, rule_s=17.0)


def planned(*names, shared_s=0.0, each_s=60.0):
    """Cells that share one preparation and have one timing each."""
    cells = [SimpleNamespace(key=name, label=lambda axes, name=name: name) for name in names]
    tasks = {"shared": task("shared", shared_s), **{f"t{name}": task(f"t{name}", each_s) for name in names}}
    return Plan(cells, ["x"], tasks, {n: ["shared", f"t{n}"] for n in names}, {n: {} for n in names})


def chosen(plan, rotation, minutes, cached=()):
    part, left = choose(plan, rotation, minutes, lambda task: task.key in cached)
    assert sorted([*(c.key for c in part.cells), *left]) == sorted(c.key for c in plan.cells)
    return [cell.key for cell in part.cells]


def test_the_rule_regressed_then_never_measured_then_longest_ago(tmp_path):
    rotation = Rotation(tmp_path / "s", measured={"old": "1", "new": "3", "bad": "4"}, again=["bad"])
    order = sorted(["new", "old", "bad", "never"], key=rotation.rank)
    assert order == ["bad", "never", "old", "new"]
    plan = planned("new", "old", "bad", "never")
    assert chosen(plan, rotation, 2.5) == ["bad", "never"]  # in the order of the matrix, which here is the same
    assert chosen(plan, rotation, None) == ["new", "old", "bad", "never"]


def test_the_budget_counts_what_is_shared_once_and_what_is_cached_not_at_all(tmp_path):
    rotation = Rotation(tmp_path / "s")
    assert chosen(planned("a", "b", "c", shared_s=100), rotation, 4) == ["a"]
    assert chosen(planned("a", "b", "c", shared_s=100), rotation, 4, cached={"shared"}) == ["a", "b", "c"]
    assert chosen(planned("a", "b"), rotation, 0.01) == ["a"]  # one at least, or nothing would ever be done
    assert chosen(planned("a", "b", each_s=None), rotation, 1) == ["a", "b"]  # by the rule, 17 s each


def test_refused_cells_cost_nothing_and_are_never_left(tmp_path):
    plan = planned("a", "b", "c")
    plan.refused["c"] = "no"
    del plan.chains["c"]
    assert chosen(plan, Rotation(tmp_path / "s"), 1.2) == ["a", "c"]


def test_a_cell_is_looked_at_again_until_a_night_clears_it(tmp_path):
    rotation = Rotation(tmp_path / "nightly" / "state.json")
    a, b, c = (cell(chunks=n) for n in (1, 2, 3))
    c.status = Status.SKIPPED
    rotation.note("1", [a, b, c], [a.cell_key])
    rotation.write()
    rotation = Rotation.read(tmp_path)
    assert rotation.again == [a.cell_key] and set(rotation.measured) == {a.cell_key, b.cell_key}
    rotation.note("2", [b], [])
    assert rotation.again == [a.cell_key]
    rotation.note("3", [a], [])
    assert rotation.again == [] and rotation.measured[a.cell_key] == "3"


def test_two_nights_do_not_overlap(tmp_path):
    with (
        night.hold_lock(tmp_path),
        pytest.raises(StoreError, match=rf"still running \(process {os.getpid()}\)"),
        night.hold_lock(tmp_path),
    ):
        pass
    with night.hold_lock(tmp_path):  # free again
        assert night.locks.tried(tmp_path / "lock") is None


@pytest.fixture
def dream(tmp_path, monkeypatch):
    """Nights without any process: each call of the fixture is one night with the given records."""
    settings = {
        "out": str(tmp_path), "budget_minutes": None, "nightly": {"enabled": True, "keep_runs": 3, "cache_gb": 1},
        "tracking": {"enabled": False},
    }  # fmt: skip
    plan = planned(cell().cell_key, cell(chunks=2).cell_key)
    monkeypatch.setattr(night, "plan_for", lambda *_: plan)
    monkeypatch.setattr(engine, "write_report", lambda *_: None)

    def one(stamp, *records):
        def perform(*_):
            write_run(tmp_path, stamp, list(records), started="2026-01-01T00:00:00+00:00")
            info = {"started": "2026-01-01T02:00:00+00:00", "finished": "2026-01-01T02:40:00+00:00", "schema": 1}
            (tmp_path / "runs" / stamp / "run.json").write_text(json.dumps({**info, "plan_key": "p", "command": []}))
            return runs.find_run(tmp_path, stamp), list(records), True

        monkeypatch.setattr(engine, "perform", perform)
        return night.night(SimpleNamespace(settings=read_run(settings)), tmp_path, [])

    return one


def test_good_nights_stay_good_until_something_regresses_and_is_accepted(dream, tmp_path, capsys):
    assert dream("n1", cell(), cell(chunks=2)) == 0
    assert "no good night to compare with yet" in (tmp_path / "nightly" / "latest.md").read_text()
    assert dream("n2", cell(slower(1.01)), cell(chunks=2)) == 0 and sides.good_runs(tmp_path) == ["n2", "n1"]
    assert dream("n3", cell(slower(1.3)), cell(chunks=2)) == 1 and sides.good_runs(tmp_path) == ["n2", "n1"]
    said = (tmp_path / "nightly" / "latest.md").read_text()
    assert said.startswith("# ane-sweep n3: regression: 1 slower\n") and "nightly accept n3" in said
    assert "2 cells in 40 min: 2 ok." in said
    assert Rotation.read(tmp_path).again == [cell().cell_key]
    assert dream("n4", cell(slower(1.3)), cell(chunks=2)) == 1  # still measured against the last good night
    assert main(["nightly", "accept", "n4", f"out={tmp_path}"]) == 0
    assert dream("n5", cell(slower(1.3)), cell(chunks=2)) == 0
    assert len(said.splitlines()) < 20


def test_off_a_mac_nights_are_about_the_estimate_and_never_about_this_cpu(dream, tmp_path):
    def checked(ms, estimate):
        return cell((ms,), runtime="auto", estimates={"m4": estimate})

    assert dream("n1", checked(10.0, 1.2)) == 0 and dream("n2", checked(90.0, 1.2)) == 0
    said = latest(tmp_path)
    assert (
        said.startswith("# ane-sweep n2: no regression in the 1 cell, by the estimates for M4\n")
        and "untested" not in said
    )
    assert "processes" not in said and sides.good_runs(tmp_path) == ["n2", "n1"]
    assert dream("n3", checked(10.0, 2.4)) == 1 and sides.good_runs(tmp_path) == ["n2", "n1"]
    assert latest(tmp_path).startswith("# ane-sweep n3: regression: 1 estimated slower\n")
    assert main(["nightly", "accept", "n3", f"out={tmp_path}"]) == 0 and dream("n4", checked(50.0, 2.4)) == 0


def test_another_sweep_on_the_cache_costs_a_night_its_pruning_only(dream, tmp_path, capsys):
    with Store(tmp_path / "cache"):
        assert dream("n1", cell()) == 0
    assert "doubt: " in (said := capsys.readouterr()).err and "is in use by another ane-sweep" in said.err
    assert "summary: " in said.out


def latest(out):
    return (out / "nightly" / "latest.md").read_text()


BROKEN = {"status": "out_of_memory", "reason": "convert: 0.3 GiB", "medians": (), "psnr": None, "size": None}


def test_a_night_gone_on_with_in_its_report_is_not_compared_with_itself(dream, tmp_path, monkeypatch):
    assert dream("n1", cell()) == 0
    with monkeypatch.context() as patch:
        patch.setattr(engine, "write_report", lambda *_: 1 / 0)  # whatever ends it there
        with pytest.raises(ZeroDivisionError):
            dream("n2", cell(slower(0.7)))
    assert dream("n2", cell(slower(0.7))) == 0 and "better: 1 faster" in latest(tmp_path)
    assert sides.good_runs(tmp_path) == ["n2", "n1"]


def test_a_cell_that_fails_is_no_level_and_every_night_is_bad_until_it_works_again(dream, tmp_path):
    assert dream("n1", cell(**BROKEN)) == 1 and sides.good_runs(tmp_path) == []
    assert latest(tmp_path).startswith("# ane-sweep n1: 1 of 1 cell not working; no good night to compare with yet\n")
    assert "- 1 cell out_of_memory: convert: 0.3 GiB" in latest(tmp_path)
    assert dream("n2", cell(**BROKEN)) == 1 and sides.good_runs(tmp_path) == []
    assert dream("n3", cell()) == 0 and sides.good_runs(tmp_path) == ["n3"]
    for night_of in ("n4", "n5"):
        assert dream(night_of, cell(**BROKEN)) == 1 and "**stopped working: 1**" in latest(tmp_path)
    assert Rotation.read(tmp_path).again == [cell().cell_key]
    assert dream("n6", cell(slower(1.3))) == 1 and "- gpt2: 10 -> 13 ms" in latest(tmp_path)  # against n3
    assert dream("n7", cell()) == 0 and Rotation.read(tmp_path).again == []


def test_cells_that_work_have_their_level_beside_one_that_fails(dream, tmp_path):
    assert dream("n1", cell(), cell(chunks=2, **BROKEN)) == 1 and sides.good_runs(tmp_path) == ["n1"]
    assert [one.cell["chunks"] for one in sides.good_records(tmp_path)] == [1]
    assert dream("n2", cell(), cell(chunks=2, **BROKEN)) == 1
    first = latest(tmp_path).splitlines()[0]
    assert first == "# ane-sweep n2: 1 of 2 cells not working; no regression in the 1 cell tested"
    assert "1 cell without a good night to be compared with: gpt2 chunks=2." in latest(tmp_path)
    assert dream("n3", cell(slower(1.3)), cell(chunks=2, **BROKEN)) == 1 and "**slower: 1**" in latest(tmp_path)


def test_a_bad_cell_that_the_budget_did_not_reach_keeps_the_night_bad(dream, tmp_path):
    assert dream("n1", cell(), cell(chunks=2, **BROKEN)) == 1
    for unmeasured in ([], [cell(chunks=2, status="skipped", medians=())]):
        assert dream("n2", cell(), *unmeasured) == 1
        assert "1 cell bad before and not measured tonight" in latest(tmp_path)
    assert dream("n3", cell(), cell(chunks=2)) == 0 and "bad before" not in latest(tmp_path)


def test_a_refused_cell_is_no_failure(dream, tmp_path):
    assert dream("n1", cell(), cell(chunks=2, **BROKEN | {"status": "refused"})) == 0
    assert dream("n2", cell(), cell(chunks=2, **BROKEN | {"status": "refused"})) == 0
    assert "not working" not in latest(tmp_path)


def test_a_night_of_which_nothing_could_be_tested_is_in_doubt(dream, tmp_path):
    assert dream("n1", cell((10.0,))) == 0
    assert dream("n2", cell((16.1,))) == 3
    assert latest(tmp_path).startswith("# ane-sweep n2: no latency could be compared (one timing process a side)")


def test_a_night_that_could_not_be_tested_is_no_level(dream, tmp_path, capsys):
    """The budget cut n2 short: one process saw a program 1.6 times slower, which proves nothing and excuses nothing."""
    assert dream("n1", cell()) == 0
    assert dream("n2", cell((16.0,))) == 3 and sides.good_runs(tmp_path) == ["n1"]
    assert "1 cell not tested: the last good night stays the level" in latest(tmp_path)
    assert dream("n3", cell(slower(1.6))) == 1 and "- gpt2: 10 -> 16 ms" in latest(tmp_path)
    assert main(["nightly", "accept", "n2", f"out={tmp_path}"]) == 2
    assert "fewer than 3 processes timed each of its cells" in capsys.readouterr().err
    assert dream("n4", cell(slower(1.6))) == 1


def test_of_a_night_the_cells_that_could_be_tested_are_a_level_and_the_others_are_not(dream, tmp_path):
    assert dream("n1", cell(), cell(chunks=2)) == 0
    assert dream("n2", cell(slower(1.01)), cell((16.0, 16.1), chunks=2)) == 0
    levels = {one.cell["chunks"]: one.sweep for one in sides.good_records(tmp_path)}
    assert levels == {1: "n2", 2: "n1"}
    other_host = cell(slower(1.6), chunks=2, host={"chip": "another"})
    assert dream("n3", cell(), other_host) == 0  # five processes, and still not comparable
    assert {one.cell["chunks"]: one.sweep for one in sides.good_records(tmp_path)} == {1: "n3", 2: "n1"}
    assert dream("n4", cell(), cell(slower(1.6), chunks=2)) == 1
    assert main(["nightly", "accept", "n3", f"out={tmp_path}"]) == 0
    assert {one.cell["chunks"]: one.sweep for one in sides.good_records(tmp_path)} == {1: "n3", 2: "n3"}


def test_a_level_of_too_few_processes_gives_way_to_the_first_that_can_be_tested(dream, tmp_path):
    assert dream("n1", cell((10.0,))) == 0 and dream("n2", cell((10.0,), psnr=50.0)) == 1  # accuracy needs no process
    assert dream("n3", cell()) == 3 and dream("n4", cell(slower(1.6))) == 1
    sides.tag_good(tmp_path, "n2")  # as an earlier version did
    assert [one.sweep for one in sides.good_records(tmp_path)] == ["n3"]


def test_nights_that_were_not_tested_do_not_excuse_a_slow_one(dream, tmp_path):
    for number, factor in enumerate((1, 1.6, 1, 1.6, 1), 1):
        write_run(tmp_path, f"g{number}", [cell(slower(factor) if factor == 1 else (16.0,))])
        sides.tag_good(tmp_path, f"g{number}")
    assert dream("n1", cell(slower(1.6))) == 1 and "among themselves" not in latest(tmp_path)


def test_cells_that_differ_only_in_how_they_are_run_are_compared_night_after_night(dream, tmp_path):
    asked = [
        {"latency": {"samples": 3}},
        {"latency": {"samples": 4}},
        {"limits": {"convert": 1}},
        {"allow_pickle": True},
    ]
    assert dream("n1", *(cell(**one) for one in asked)) == 0
    assert dream("n2", *(cell(slower(1.3 if n == 1 else 1), **one) for n, one in enumerate(asked))) == 1
    assert "no regression" not in latest(tmp_path) and "**slower: 1**\n- gpt2 latency.samples=4:" in latest(tmp_path)
    assert Rotation.read(tmp_path).again == [cell(**asked[1]).cell_key]


def test_what_cannot_be_compared_is_said_and_ends_no_night(dream, tmp_path, monkeypatch, capsys):
    for number in (1, 2):
        assert dream(f"n{number}", cell()) == 0
    (tmp_path / "runs" / "n2" / "records.jsonl").write_text("{torn")
    assert dream("n3", cell(slower(1.3))) == 1  # held against n1
    assert "doubt: line 1 of" in capsys.readouterr().err
    monkeypatch.setattr(night, "match", lambda *_: 1 / 0)
    assert dream("n4", cell(), cell(chunks=2)) == 3 and "n4" not in sides.good_runs(tmp_path)
    assert latest(tmp_path).startswith("# ane-sweep n4: not compared with the good nights: division by zero\n")
    assert Rotation.read(tmp_path).measured[cell(chunks=2).cell_key] == "n4"
    assert Rotation.read(tmp_path).again == [cell().cell_key]  # still to be looked at
    assert dream("n5", cell(), cell(chunks=2, **BROKEN)) == 1
    assert set(Rotation.read(tmp_path).again) == {cell().cell_key, cell(chunks=2).cell_key}


def test_accepting_is_for_cells_that_ran(dream, tmp_path, capsys):
    assert dream("n1", cell(**BROKEN)) == 1
    assert main(["nightly", "accept", "n1", f"out={tmp_path}"]) == 2 and "none of its cells" in capsys.readouterr().err
    assert dream("n2", cell()) == 0 and dream("n3", cell(slower(1.3)), cell(chunks=2, **BROKEN)) == 1
    assert main(["nightly", "accept", "n3", f"out={tmp_path}"]) == 0
    assert "n3 is good: 1 of its 2 cells" in capsys.readouterr().out
    assert Rotation.read(tmp_path).again == [cell(chunks=2).cell_key]


def test_what_good_nights_differ_by_among_themselves_is_no_regression(dream, tmp_path):
    for number, factor in enumerate((1, 1.1, 0.9, 1.12, 0.92, 1.02), 1):
        write_run(tmp_path, f"g{number}", [cell(slower(factor))])
        sides.tag_good(tmp_path, f"g{number}")
    assert dream("n1", cell(slower(1.15))) == 0
    said = (tmp_path / "nightly" / "latest.md").read_text()
    assert "**timing differs, but not enough: 1**" in said and "6 good nights differ as much among themselves" in said
    assert dream("n2", cell(slower(2))) == 1


def test_each_figure_is_held_against_what_good_nights_differ_by_in_that_figure(dream, tmp_path):
    """Tokens are decoded as before, in nights that scatter; the prefill, which never did, takes twice as long."""
    for number, factor in enumerate((1, 1.1, 0.9, 1.12, 0.92, 1.02), 1):
        write_run(tmp_path, f"g{number}", [cell(slower(factor), prefill=slower(1 + number / 1000, (50.0,) * 5))])
        sides.tag_good(tmp_path, f"g{number}")
    assert dream("n1", cell(slower(1.15), prefill=slower(2, (50.0,) * 5))) == 1
    said = (tmp_path / "nightly" / "latest.md").read_text()
    assert "**slower: 1**\n- gpt2: prefill: 50.3 -> 100 ms" in said and "6 good nights differ as much" in said


def test_runs_beyond_the_limit_go_but_those_that_good_needs_stay(tmp_path):
    for number in range(1, 8):
        cells = [cell(chunks=2)] if number == 1 else [cell()]
        write_run(tmp_path, f"n{number}", cells)
    write_run(tmp_path, "m0", [cell()], nightly=False)
    for number in (1, 3, 4):
        sides.tag_good(tmp_path, f"n{number}")
    with Store(tmp_path / "cache") as store:
        gone = night.delete_old(tmp_path, store, keep_runs=2, cache_gb=1)
    assert (
        sorted(gone) == ["n2", "n3", "n5"]
        and (tmp_path / "runs" / "m0").exists()
        and sides.good_runs(tmp_path) == ["n4", "n1"]
    )


@pytest.mark.slow
def test_three_real_nights_take_turns(tmp_path, capsys):
    args = [
        "+sweep=nightly", "-m", "model=tiny-gpt2", "weights=random", "seq_len=16", "chunks=1", "compute_units=all",
        "variant=original,split_einsum", "runtime=torch_eager", "latency.repeats=2", "latency.samples=3",
        "gate.wait_s=0", "tracking.enabled=false", f"out={tmp_path}",
    ]  # fmt: skip
    assert main(args) in (0, 3)
    first = Rotation.read(tmp_path)
    assert len(first.measured) == 2
    for one in read_records(runs.find_run(tmp_path, None).folder):
        assert [(t.round, len(t.samples_ms), t.gate.ready) for t in one.timings] == [(1, 3, True), (2, 3, True)]
        assert one.value("latency_processes") == 2 and [s.stage for s in one.stages].count("latency") == 2
    capsys.readouterr()
    for _ in range(2):  # everything but the timings is cached; the budget is too small for more than one cell
        assert main([*args, "budget_minutes=0.03"]) == 3  # two processes a side prove nothing
        said = capsys.readouterr()
        assert (
            "tonight 1 of 2 cells" in said.err
            and "1 cells are left" in (tmp_path / "nightly" / "latest.md").read_text()
        )
    later = Rotation.read(tmp_path)
    assert all(later.measured[key] > first.measured[key] for key in first.measured)

"""A search on a real plan whose tasks are played: what is dropped, in which order the rest is timed, when it ends."""

import json
import os
import re

import constructed
import pytest
from planner.test_plan import planned

from ane_sweep.bridge.figures import Metric, Timing
from ane_sweep.bridge.plan import Outcome
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.task import TaskResult
from ane_sweep.errors import ConfigError
from ane_sweep.placement.types import Ops
from ane_sweep.planner import config
from ane_sweep.results import search_log
from ane_sweep.runner.executors import local
from ane_sweep.search import answer, run, timings
from ane_sweep.search.goal import of_settings, parse
from ane_sweep.search.search import SETTLED

PSNR = {"fp16": 70.0, "p6": 45.0, "p4": 30.0}
SIZE = {"fp16": 4e7, "p6": 2e7, "p4": 1e7}
MS = {("fp16", 1): 2.0, ("fp16", 2): 8.0, ("p6", 1): 2.5, ("p6", 2): 9.0, ("p4", 1): 0.5, ("p4", 2): 7.0}
WORDS = ["-m", "model=tiny-gpt2", "weights=random", "precision=fp16,p6,p4", "chunks=1,2", "latency.repeats=1",
         "evidence=off", "tracking.enabled=false", "chips=[m4]"]  # fmt: skip

TIMED = ("runtime=reference",)  # asked for by name: its timings answer
WITHHELD = "m4: what was published of this form contradicts its terms"


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Searches with every task played; returns (what was found, records, what was timed). `withheld`: no estimate of these."""
    timed = []
    withheld: set[tuple[str, int]] = set()

    def play(task):
        word = next((part for part in ("p6", "p4") if f" {part}" in task.label), "fp16")
        chunks = 2 if "chunks=2" in task.label else 1
        result = TaskResult(task.stage, task.key, "ok")
        if task.stage in ("convert", "compress"):
            result.metrics = [Metric("package_bytes", SIZE[word], "bytes")]
        elif task.stage == "predict" and (word, chunks) in withheld:
            result.placement = [constructed.placement("predicted", "m4", Ops(1, 0, 9, 10), not_estimated=WITHHELD)]
            result.metrics = [Metric("cost_share_ane", 0.9 / chunks, kind="predicted", chip="m4")]
        elif task.stage == "predict":
            ms = MS[word, chunks]
            result.placement = [constructed.placement("predicted", "m4", Ops(1, 0, 9, 10))]
            names = {"latency_low_ms": 0.7, "latency_ms": 1.0, "latency_high_ms": 1.4}
            result.metrics = [Metric(n, ms * f, "ms", kind="estimated", chip="m4") for n, f in names.items()]
        elif task.stage == "score":
            result.metrics = [Metric("psnr_db", PSNR[word], "dB")]
        elif task.stage == "latency":
            timed.append((word, chunks))
            result.timing = Timing(task.round, MS[word, chunks], samples_ms=[MS[word, chunks]] * 5)
            result.metrics = [Metric("latency_median_ms", MS[word, chunks], "ms")]
            result.realised = {"runtime": task.params["runtime"]}
        return Outcome(StageStatus.OK, None, result)

    def execute(runner, settings, meanwhile=None):
        plan, outcomes = runner.plan, runner.outcomes
        for key, task in plan.tasks.items():
            if key not in outcomes:
                assert outcomes.keys() >= {*task.inputs.values()}, f"{task.label} would wait for ever"
                outcomes[key] = Outcome(StageStatus.UNAVAILABLE, task.unavailable) if task.unavailable else play(task)

    monkeypatch.setattr(local, "execute", execute)

    def go(*words, precision="fp16,p6,p4", without=()):
        withheld.update(without)
        asked = [word.replace("fp16,p6,p4", precision) for word in WORDS]
        goal, rest = parse([*asked, *words])
        request = config.load([*rest, f"out={tmp_path}"])
        goal = of_settings(request.settings.search, goal)
        found, records = run.best(request, goal, tmp_path, list(words))
        return found, records, timed

    return go


def named(found, records):
    return [(r.cell["precision"], r.cell["chunks"]) for r in answer.choose_winners(found.goal, records)]


@pytest.mark.slow
@pytest.mark.ci
def test_what_breaks_a_limit_is_never_timed_and_says_so(played):
    found, records, timed = played(*TIMED, "psnr_db>=40", "package_mb<=30")
    assert set(timed) == {("p6", 1), ("p6", 2)} and named(found, records) == [("p6", 1)]
    reasons = {(r.cell["precision"], r.cell["chunks"]): r.reason for r in records}
    assert "package_mb is 40, and package_mb<=30 was asked for" in reasons["fp16", 1]
    assert "psnr_db is 30, and psnr_db>=40 was asked for" in reasons["p4", 2]
    said = answer.answer_text(found, records, explain=True)
    assert "2 of 6 cells timed, as Optuna asked" in said and "latency_ms 2.5" in said
    assert "p6 (best)" in said and "2 cells: package_mb breaks its limit" in said


@pytest.mark.slow
@pytest.mark.ci
def test_cells_are_timed_in_the_order_of_their_estimates_until_none_can_win(played, on_an_m4):
    found, records, timed = played("psnr_db>=40", "runtime=coreml", "compute_units=cpu_and_ne")
    assert timed == [("fp16", 1), ("p6", 1)], "the third's estimate is 8 ms, at its best 5.6"
    assert named(found, records) == [("fp16", 1)] and "in the order of the estimates" in found.how
    assert {reason for key, reason in found.never.items()} >= {
        "its estimate, at its best, is no better than what was found"
    }


def test_a_cell_without_an_estimate_is_timed_after_those_that_have_one_and_the_search_says_why(played, on_an_m4):
    words = ("runtime=coreml", "compute_units=cpu_and_ne")
    found, records, timed = played(*words, without={("p6", 1), ("p6", 2)})
    assert timed[0] == ("p4", 1) and sorted(timed[1:]) == [("p6", 1), ("p6", 2)], "no other can win by its estimate"
    assert "in the order of the estimates for this chip; 2 cells without one after them" in found.how
    assert found.how.endswith(f"not estimated: {WITHHELD}") and named(found, records) == [("p4", 1)]


@pytest.mark.slow
@pytest.mark.ci
def test_where_every_estimate_is_withheld_the_search_says_why(played, on_an_m4):
    found, _, timed = played("runtime=coreml", "compute_units=cpu_and_ne", without=set(MS))
    assert len(timed) == 6 and found.how == f"as Optuna asked: not estimated: {WITHHELD}"


def test_nothing_is_timed_for_a_goal_that_is_known_before(played):
    found, records, timed = played("psnr_db>=40", "minimise=package_mb")
    assert timed == [] and named(found, records)[0][0] == "p6"
    assert "nothing had to be timed" in answer.answer_text(found, records, explain=False)


@pytest.mark.parametrize("words", [("minimise=estimated_ms",), ("minimise=package_mb", "estimated_ms<=2.2")])
def test_an_estimate_needs_no_timing_and_the_answer_names_its_chip(played, words):
    found, records, timed = played(*words, without={("p4", 1), ("p4", 2)})
    assert timed == [] and named(found, records) == [("fp16", 1)]
    said = answer.answer_text(found, records, explain=False)
    assert "estimated_ms.m4 2" in said and "nothing had to be timed" in said
    withheld = f"2 cells: estimated_ms.m4 is not known of it: {WITHHELD}"
    assert withheld in said, (
        "a cell whose estimate is withheld cannot be held against the goal, however long it is timed"
    )


def test_where_no_estimate_is_known_nothing_is_timed_either(played):
    found, records, timed = played("estimated_ms<=2", without=set(MS))
    assert timed == [] and named(found, records) == []
    assert f"no cell fits: 6 cells: estimated_ms.m4 is not known of it: {WITHHELD}" in answer.answer_text(
        found, records, explain=False
    )


def test_a_limit_on_an_estimate_drops_cells_before_the_others_are_timed(played):
    found, records, timed = played(*TIMED, "estimated_ms.m4<=2.2", "minimise=latency_ms")
    assert sorted(timed) == [("fp16", 1), ("p4", 1)] and named(found, records) == [("p4", 1)]


def test_a_recipe_that_calibrates_has_its_reference_before(played):
    """A task whose inputs are no part of its phase waited for them for ever."""
    found, _, timed = played("minimise=package_mb", precision="mixed4,w8a8")
    assert timed == [] and set(found.never.values()) == {SETTLED}


def test_where_no_cell_is_left_the_summary_does_not_say_that_all_is_known(played):
    found, _, timed = played(*TIMED, "package_mb<=1")
    assert timed == [] and found.summary(6) == "0 of 6 cells timed, as none was left"


@pytest.mark.slow
@pytest.mark.ci
def test_several_objectives_give_a_front(played):
    found, records, _ = played(*TIMED, "minimise=latency_ms", "maximise=psnr_db")
    assert sorted(named(found, records)) == [("fp16", 1), ("p4", 1)]


def test_trials_are_bounded_and_the_rest_says_why(played):
    found, _, timed = played(*TIMED, "search.trials=2")
    assert len(timed) == 2 and set(found.never.values()) == {"search.trials=2 were spent"}


def test_no_cell_fits(played):
    found, records, timed = played(*TIMED, "psnr_db>=90")
    assert timed == [] and named(found, records) == []
    assert "no cell fits: 6 cells: psnr_db breaks its limit" in answer.answer_text(found, records, explain=False)


def test_the_answer_is_kept_beside_the_records(played):
    found, _, _ = played(*TIMED, "psnr_db>=40")
    kept = json.loads((found.run.folder / search_log.FILE_NAME).read_text())
    assert kept["goal"] == {"objectives": {"latency_ms": -1}, "limits": ["psnr_db>=40"]}
    assert len(kept["trials"]) + len(kept["never"]) == 6 and len(kept["best"]) == 1


def test_the_report_draws_the_trials_and_says_what_was_never_timed(played):
    found, _, _ = played(*TIMED, "psnr_db>=40")
    page = (found.run.folder / "report.html").read_text()
    assert "smallest latency_ms with psnr_db&gt;=40: 4 of 6 cells timed" in page and ">trial<" in page
    assert "psnr_db breaks its limit" in page and "precision=p4 chunks=1 (30); precision=p4 chunks=2 (30)" in page
    assert "the line joins what no other trial beats in both" in page, "the front of latency and the limited figure"


def test_the_points_of_a_search_are_the_cells_they_stand_for(played):
    found, records, _ = played(*TIMED, "psnr_db>=40")
    page = (found.run.folder / "report.html").read_text()
    known = {str(n): found.labels[record.cell_key] for n, record in enumerate(records)}
    for name in ("front", "trials"):
        [plot] = re.findall(rf'<svg role="img" aria-label="{name}".*?</svg>', page, re.DOTALL)
        points = re.findall(r'<circle class="pt" data-cell="(-?\d+)"[^>]*><title>([^<]*)', plot)
        assert sorted(words for _, words in points) == sorted(found.labels[key] for key in found.trials)
        assert all(known.get(cell) == words for cell, words in points)
    places = [[record.cell_key for record in records].index(key) for key in found.trials]
    assert places != list(range(len(places))), "else the number of a trial would do"


def test_a_kept_matrix_may_say_what_is_wanted(played):
    found, _, timed = played("search.limits=['package_mb<=15']", "search.minimise=[psnr_db]")
    assert str(found.goal) == "smallest psnr_db with package_mb<=15" and timed == []


def test_an_objective_that_is_not_recorded_here_ends_the_search_at_the_first_cell(played):
    found, records, timed = played(*TIMED, "minimise=measured.energy_ane_mj")
    assert len(timed) == 1
    assert "no cell fits: 5 cells: measured.energy_ane_mj was not recorded of what was timed" in answer.answer_text(
        found, records, explain=False
    )


@pytest.mark.slow
@pytest.mark.ci
def test_a_limit_that_nobody_could_look_at_is_a_doubt(played):
    found, records, _ = played(*TIMED, "cosine>=0.9")
    [best] = answer.choose_winners(found.goal, records)
    assert "doubt: cosine>=0.9 was asked for, and cosine was not recorded" in answer.answer_text(
        found, records, explain=False
    )
    assert answer.describe_unknown_limits(found.goal, [best])


@pytest.mark.slow
@pytest.mark.ci
def test_off_a_mac_the_default_is_the_estimate_and_one_line_answers(played):
    found, records, timed = played("psnr_db>=40")
    assert timed == [] and str(found.goal) == "smallest estimated_ms.m4 with psnr_db>=40"
    assert not [task for task in found.plan.tasks.values() if task.stage == "latency"], "nor is a timing announced"
    assert {(r.cell["precision"], r.status.value) for r in records} == {("fp16", "ok"), ("p6", "ok"), ("p4", "skipped")}
    first, gives, package, *rest = answer.answer_text(found, records, explain=False).splitlines()
    assert first.startswith(
        "Ship tiny-gpt2 chunks=1 precision=fp16 on M4: 2 ms (estimated; 1.4 to 2.8), not told apart from precision=p6 (2.5 ms)"
    )
    assert "PSNR 70.0 dB" in gives, gives
    assert "package 40.0 MB against 20.0 with precision=p6" in gives and package.startswith(
        "Its package: ane-sweep get "
    )
    assert "left out: 2 cells: psnr_db breaks its limit" in rest, "p4 is the fastest and breaks the limit"
    assert named(found, records) == [("fp16", 1)]


@pytest.mark.slow
@pytest.mark.ci
def test_there_is_one_answer_and_its_command_names_the_folder_where_the_run_is(played, tmp_path, capsys, monkeypatch):
    found, records, _ = played("psnr_db>=40")
    assert "Ship" not in capsys.readouterr().out, "the table leaves the answer to the search"
    assert f"out={os.path.relpath(tmp_path)}" in answer.answer_text(found, records, explain=False)
    monkeypatch.setenv("ANE_SWEEP_OUT", str(tmp_path))
    assert "out=" not in answer.answer_text(found, records, explain=False)


@pytest.mark.slow
@pytest.mark.ci
def test_another_goal_has_its_own_answer_and_its_command(played):
    found, records, _ = played("psnr_db>=40", "minimise=package_mb", "chunks=1")
    said = answer.answer_text(found, records, explain=True)
    assert "Ship" not in said and "precision=p6" in said.split("Its package: ")[1].splitlines()[0]
    assert "not timed" not in said and "was not needed" not in said


@pytest.mark.slow
@pytest.mark.ci
def test_the_chip_of_the_goal_is_the_chip_of_the_answer(played):
    found, records, _ = played("chips=[m1,m4]", "minimise=estimated_ms.m4")
    assert answer.answer_text(found, records, explain=False).startswith("Ship tiny-gpt2 chunks=1 precision=p4 on M4: ")
    assert found.settings.chips == ["m4", "m1"]


@pytest.mark.slow
@pytest.mark.ci
def test_the_cell_after_the_first_is_named_where_they_are_not_told_apart(played, monkeypatch):
    monkeypatch.setitem(MS, ("p6", 1), 2.01)
    found, records, _ = played("psnr_db>=40")
    assert "not told apart from precision=p6 (2.01 ms)" in answer.answer_text(found, records, explain=False)


def test_cells_whose_estimate_is_withheld_are_left_out_and_said(played):
    found, records, timed = played("psnr_db>=40", without={("fp16", 1), ("fp16", 2)})
    assert timed == [] and named(found, records) == [("p6", 1)]
    said = answer.answer_text(found, records, explain=False)
    assert f"left out: 2 cells: estimated_ms.m4 is not known of it: {WITHHELD}; 2 cells: psnr_db breaks" in said


def test_where_every_estimate_is_withheld_the_share_of_the_cost_stands_for_it(played, capsys):
    found, records, timed = played("psnr_db>=40", without=set(MS))
    assert timed == [] and str(found.goal) == "largest ane_cost_share.m4 with psnr_db>=40"
    assert named(found, records) == [("fp16", 1)], "p6 has the same share, and a lower PSNR"
    said = answer.answer_text(found, records, explain=False)
    assert "90 % of its cost is predicted on M4's Neural Engine" in said and WITHHELD.removeprefix("m4: ") in said
    assert f"no latency is estimated of any cell: {WITHHELD}; searching for the largest" in capsys.readouterr().err


def test_the_least_latency_asked_for_by_its_word_stays_what_is_searched(played):
    found, records, _ = played("minimise=latency_ms", without=set(MS))
    assert named(found, records) == [] and str(found.goal) == "smallest estimated_ms.m4"


@pytest.mark.slow
@pytest.mark.parametrize(
    "figure", ["measured.latency_median_ms", "load_ms", "measured.energy_ane_mj", "peak_memory_mb"]
)
def test_a_figure_of_a_timing_that_nobody_asked_for_is_refused_with_the_words_that_ask(played, figure):
    words = [f"minimise={figure}", "latency.repeats=auto"]
    with pytest.raises(
        ConfigError, match=r"runtime=auto nothing is measured .* add runtime=reference .*minimise=estimated_ms"
    ):
        played(*words)
    assert played(*words, "runtime=reference")[2] and played(words[0], "latency.repeats=2")[2]


@pytest.mark.parametrize(
    ("more", "said"), [([], "with runtime=auto nothing is measured .* add runtime=reference"), (["latency=off"], "latency=off times")]
)  # fmt: skip
def test_a_timing_that_a_large_cell_leaves_to_its_score_is_refused_as_any_check(more, said):
    made = planned("-m", "model=gpt2-xl", "weights=random", "latency.repeats=auto", *more)
    with pytest.raises(ConfigError, match=said):
        timings.settle_goal(parse(["minimise=load_ms"])[0], made, ["m4"])


@pytest.mark.slow
@pytest.mark.ci
def test_cells_that_are_timed_and_cells_that_are_estimated_are_not_ordered_together(played):
    with pytest.raises(ConfigError, match="some cells are timed and others estimated"):
        played("runtime=auto,reference")
    assert played("runtime=auto,reference", "minimise=estimated_ms")[2] == []


@pytest.mark.slow
@pytest.mark.ci
def test_a_search_by_estimates_reads_a_finished_sweep_of_the_same_cells(played):
    found, _, _ = played("minimise=measured.latency_median_ms")
    again, records, timed = played("resume=last", "psnr_db>=40")
    assert again.run.stamp == found.run.stamp and len(timed) == 6 and named(again, records) == [("fp16", 1)]

"""A search over free values, on real plans whose tasks are played: what is asked for, once each, in which order, and what
becomes of it when it is interrupted."""

import json
import re

import optuna
import pytest

from ane_sweep.bridge.figures import Metric, Timing
from ane_sweep.bridge.plan import Outcome
from ane_sweep.bridge.record import StageStatus, read_records
from ane_sweep.bridge.task import TaskResult
from ane_sweep.planner import config, free
from ane_sweep.results import search_log
from ane_sweep.runner.executors import local
from ane_sweep.search import answer, drawn, run
from ane_sweep.search.goal import of_settings, parse
from ane_sweep.search.search import HOPELESS, SETTLED
from ane_sweep.store.runs import STUDY

WORDS = [
    "model=tiny-gpt2",
    "weights=random",
    "latency.repeats=1",
    "evidence=off",
    "tracking.enabled=false",
    "chips=[m4]",
]
BUDGET = ["precision=mixed4", "precision.weights.bits=interval(2,8)"]
ON_A_CHIP = ["runtime=coreml", "compute_units=cpu_and_ne"]


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Searches with every task played: PSNR is ten times the bits, MB are the bits, and 5 bits are the fastest, 1 ms.
    Returns a function: words -> (what was found, records, labels of the timings)."""
    timed = []

    def play(task):
        bits = float((re.findall(r"bits\D{1,3}([\d.]+)", task.label) or [5])[0])
        ms = 1 + abs(bits - 5)
        result = TaskResult(task.stage, task.key, "ok")
        if task.stage in ("convert", "compress"):
            result.metrics = [Metric("package_bytes", bits * 1e6, "bytes")]
            result.doubts = ["*nowhere* matches no weight"] if "*nowhere*" in str(task.params) else []
        elif task.stage == "chunk":
            result.realised = {"cut_behind": ["op:x"] if "cuts" in task.label else None}
        elif task.stage == "predict":
            names = {"latency_low_ms": 0.9, "latency_ms": 1.0, "latency_high_ms": 1.1}
            result.metrics = [Metric(n, ms * f, "ms", kind="estimated", chip="m4") for n, f in names.items()]
        elif task.stage == "score":
            result.metrics = [Metric("psnr_db", 10 * bits, "dB")]
        elif task.stage == "latency":
            timed.append(task.label)
            result.timing = Timing(task.round, ms, samples_ms=[ms] * 5)
            result.metrics = [Metric("latency_median_ms", ms, "ms")]
            result.realised = {"runtime": task.params["runtime"]}
        return Outcome(StageStatus.OK, None, result)

    kept = {}  # what a run folder would have

    def execute(runner, settings, meanwhile=None):
        plan, run, outcomes = runner.plan, runner.run, runner.outcomes
        for key, task in plan.tasks.items():
            if key in outcomes:
                continue
            if task.stage == "latency" and len(timed) == go.interrupted and (run.stamp, key) not in kept:
                raise KeyboardInterrupt
            if (run.stamp, key) not in kept:
                kept[run.stamp, key] = (
                    Outcome(StageStatus.UNAVAILABLE, task.unavailable) if task.unavailable else play(task)
                )
            outcomes[key] = kept[run.stamp, key]

    monkeypatch.setattr(local, "execute", execute)

    def go(*words):
        by_name = [] if any(word.startswith("runtime=") for word in words) else ["runtime=reference"]
        goal, rest = parse([*WORDS, *by_name, *words])
        space = free.space([*rest, f"out={tmp_path}"])
        request = config.load([*rest, f"out={tmp_path}"]) if space is None else run.first(space)
        found, records = run.best(request, of_settings(request.settings.search, goal), tmp_path, list(words), space)
        return found, records, timed

    go.interrupted = None
    return go


def bits(records):
    return [record.cell["precision_options"]["weights"]["bits"] for record in records]


@pytest.mark.slow
@pytest.mark.ci
def test_a_free_budget_is_searched_from_its_middle_and_each_trial_is_an_ordinary_record(played):
    found, records, timed = played(*BUDGET, "psnr_db>=40", "search.trials=25")
    assert bits(records)[0] == 5.0 and len(set(bits(records))) == len(records) == 25
    assert all(2 <= one <= 8 for one in bits(records))
    assert records == read_records(found.run.folder)
    low = [r for r in records if r.value("psnr_db") < 40]
    assert low and len(timed) == 25 - len(low) and all("psnr_db>=40 was asked for" in r.reason for r in low)
    [best] = answer.choose_winners(found.goal, records)
    assert abs(bits([best])[0] - 5) < 0.01


def test_the_winner_says_the_words_of_a_sweep_of_itself(played):
    found, records, _ = played(*BUDGET, "search.trials=3", "maximise=psnr_db")
    [best] = answer.choose_winners(found.goal, records)
    words = found.words(best.cell_key)
    assert not any(word.startswith("search.") for word in words)
    assert [cell.key for cell in config.load(words).cells] == [best.cell_key]
    assert "by itself: ane-sweep model=tiny-gpt2" in answer.answer_text(found, records, explain=False)


def test_a_range_is_tried_whole_and_nothing_twice(played):
    _found, records, timed = played("precision=mixed4", "precision.weights.bits=range(3,7)")
    assert sorted(bits(records)) == [3, 4, 5, 6] and len(timed) == len(set(timed)) == 4


@pytest.mark.slow
def test_free_bits_by_pattern_beside_a_list(played):
    found, records, _ = played(
        "-m", "precision=p8,p4", "precision.overrides.*h_0*=range(2,5)", "precision.overrides.*h_1*=2,4",
        "minimise=package_mb",
    )  # fmt: skip
    rules = [r.cell["precision_options"]["weights"]["overrides"] for r in records]
    seen = {(r.cell["precision"], *(rule["bits"] for rule in one)) for r, one in zip(records, rules)}
    assert seen == {(p, a, b) for p in ("p8", "p4") for a in (2, 3, 4) for b in (2, 4)} and len(records) == 12
    assert [rule["match"] for rule in rules[0]] == ["*h_0*", "*h_1*"]
    assert set(found.never.values()) == {SETTLED} and answer.is_sound(records[0])


def test_a_pattern_that_matches_no_weight_is_told_once_and_leaves_its_cells_in_doubt(played, capsys):
    found, records, _ = played("precision=p8", "precision.overrides.*nowhere*=range(2,5)", "minimise=latency_ms")
    assert capsys.readouterr().err.count("doubt: *nowhere* matches no weight") == 1
    assert len(records) == 3 and {r.status for r in records} == {"degraded"}
    assert "*nowhere* matches no weight" in answer.answer_text(found, records, explain=False)


@pytest.mark.slow
def test_several_objectives_are_asked_of_nsga_and_give_a_front(played):
    found, records, _ = played(*BUDGET, "minimise=latency_ms", "maximise=psnr_db", "psnr_db<=70", "search.trials=30")
    front = answer.choose_winners(found.goal, records)
    assert all(5 <= one <= 7 for one in bits(front)) and len(front) > 3
    assert type(found.study.study.sampler) is optuna.samplers.NSGAIISampler


def test_an_interrupted_search_goes_on_with_its_study(played, tmp_path):
    played.interrupted = 3
    with pytest.raises(KeyboardInterrupt):
        played(*BUDGET, "search.trials=8")
    [folder] = (tmp_path / "runs").iterdir()
    before = [one["trial_id"] for one in lines(folder) if "trial_id" in one]
    assert before and not (folder / "records.jsonl").exists()
    played.interrupted = None
    found, records, timed = played(*BUDGET, "search.trials=8")
    assert found.run.folder == folder and len(records) == 8
    assert len(timed) == len(set(timed)) == 8, "what was timed before the interruption is not timed again"
    asked = [tuple(one.params.values()) for one in found.study.study.trials]
    assert len(set(asked)) == len(asked)


def lines(folder):
    return [json.loads(line) for line in (folder / STUDY).read_text().splitlines()]


@pytest.mark.slow
def test_the_same_search_twice_in_a_row_is_two_runs(played):
    first, _, _ = played(*BUDGET, "search.trials=2")
    second, _, _ = played(*BUDGET, "search.trials=2")
    assert first.run.folder != second.run.folder


def test_a_torn_study_is_begun_again_and_nothing_is_timed_twice(played, tmp_path, capsys):
    played.interrupted = 2
    with pytest.raises(KeyboardInterrupt):
        played(*BUDGET, "search.trials=4")
    [folder] = (tmp_path / "runs").iterdir()
    text = (folder / STUDY).read_text()
    (folder / STUDY).write_text(text[: len(text) // 2] + "\n" + text[len(text) // 2 :])
    played.interrupted = None
    _, records, timed = played(*BUDGET, "search.trials=4")
    assert len(records) == 4 and len(timed) == len(set(timed)) == 4
    assert f"{STUDY} is damaged: what was asked for is asked again" in capsys.readouterr().err


def test_what_is_predicted_is_drawn_in_batches_and_timed_in_the_order_of_the_estimates(played, on_an_m4):
    found, records, timed = played(*BUDGET, *ON_A_CHIP, "search.trials=17")
    assert f"{drawn.BATCH} at a time as Optuna asked, these in the order of the estimates" in found.how
    assert len(records) == 17 and list(found.never.values()).count(HOPELESS) == 17 - len(timed) > 5
    [best] = answer.choose_winners(found.goal, records)
    assert bits([best]) == [5.0], "the middle was the first and the fastest"


def test_two_places_that_come_to_one_cut_are_timed_once(played):
    found, records, timed = played("cuts=interval(0.2,0.8)", "search.trials=3")
    assert len(records) == 3 and len(timed) == 1
    twins = [reason for reason in found.never.values() if reason.startswith(search_log.TWIN)]
    assert len(twins) == 2 and "2 cells: it is cut where another is" in answer.answer_text(
        found, records, explain=False
    )


def test_how_many_cuts_there_are_may_vary_with_their_places(played):
    _, records, _ = played("-m", "chunks=1,2,3", "cuts=interval(0.1,0.9)", "search.trials=12", "search.seed=1")
    counts = {(r.cell["chunks"], len(r.cell["cuts"] or ())) for r in records}
    assert counts == {(1, 0), (2, 1), (3, 2)} and all(
        (r.cell["cuts"] or []) == sorted(r.cell["cuts"] or []) for r in records
    )


def test_refused_cells_are_told_and_cost_no_trial(played):
    _found, records, timed = played("cuts=range(1,4)")
    assert sorted(r.cell["cuts"] for r in records if r.status == "refused") == [["layer:2"], ["layer:3"]]
    assert len(timed) == 1 and len(records) == 3


@pytest.mark.slow
def test_explain_says_of_each_stretch_of_a_free_value_what_it_bought(played):
    found, records, _ = played(*BUDGET, "psnr_db>=40", "search.trials=25")
    said = answer.answer_text(found, records, explain=True)
    rows = [line for line in said.splitlines() if line.startswith("precision.weights.bits  ")]
    assert len(rows) == 4 and " to " in rows[0] and "not timed: psnr_db is" in rows[0]
    assert sum("(best)" in row for row in rows) == 1 and any("+0 %" in row for row in rows)


def test_a_finished_search_is_read_and_not_run_again(played):
    first, records, timed = played(*BUDGET, "search.trials=6", "psnr_db>=40")
    count = len(timed)
    again, theirs, _ = played(*BUDGET, "search.trials=6", "psnr_db>=40", "resume=last")
    assert len(timed) == count and again.run.folder == first.run.folder
    assert (
        answer.answer_text(again, theirs, explain=True).replace("by itself", "").splitlines()[:3]
        == answer.answer_text(first, records, explain=True).replace("by itself", "").splitlines()[:3]
    )
    assert (again.trials, again.tried, again.never) == (first.trials, first.tried, first.never)


def test_trials_end_where_nobody_says_how_many(played, monkeypatch):
    monkeypatch.setattr(drawn, "TRIALS", 5)
    _found, records, _ = played(*BUDGET)
    assert len(records) == 5


def test_the_report_draws_the_trials_of_free_values(played):
    found, _, _ = played(*BUDGET, "psnr_db>=40", "search.trials=12")
    page = (found.run.folder / "report.html").read_text()
    assert "12 cells tried" in page and ">trial<" in page

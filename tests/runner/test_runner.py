"""Lanes: what may run side by side, in which order; outcomes become one record per cell."""

import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import played
import pytest
from hypothesis import given
from hypothesis import strategies as st
from played import Stage

from ane_sweep.bridge.plan import Outcome
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.task import Task, TaskResult
from ane_sweep.results import gather
from ane_sweep.runner.slots import SlotQueue, order_in_rounds
from ane_sweep.runner.task_runner import TaskRunner
from ane_sweep.store.cache import Store


def task(key: str, *inputs: str, memory: int = 1) -> Task:
    return Task(
        stage="convert", key=key, params={}, inputs={str(i): upstream for i, upstream in enumerate(inputs)}, folders={},
        limits={}, label=key, work=1, memory_bytes=memory, disk_bytes=0, seconds=None,
    )  # fmt: skip


def walk(tasks: list[Task], budget: int, lanes: int = 3, failing: frozenset[str] = frozenset(), longest_first=False):
    """Perform the tasks in real threads; returns (order of starts, most bytes at once, outcomes)."""
    lock, started, now, most = threading.Lock(), [], 0, 0

    def perform(item: Task) -> Outcome:
        nonlocal now, most
        with lock:
            started.append(item.key)
            now += item.memory_bytes
            most = max(most, now)
        time.sleep(0.001)
        with lock:
            now -= item.memory_bytes
        return Outcome(StageStatus.FAILED if item.key in failing else StageStatus.OK)

    outcomes: dict[str, Outcome] = {}
    work = SlotQueue(tasks, outcomes, budget, longest_first)
    threads = [threading.Thread(target=work.run_slot, args=(perform,)) for _ in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    return started, most, outcomes


def test_two_that_do_not_fit_together_run_one_after_the_other():
    _, most, outcomes = walk([task("a", memory=16), task("b", memory=16)], budget=20)
    assert most == 16 and len(outcomes) == 2


def test_one_that_never_fits_runs_alone_rather_than_never():
    _, most, outcomes = walk([task("small", memory=1), task("huge", memory=100)], budget=20)
    assert most == 100 and len(outcomes) == 2


@given(
    st.lists(st.tuples(st.integers(1, 30), st.lists(st.integers(0, 20), max_size=3)), min_size=1, max_size=14),
    st.integers(1, 4),
    st.booleans(),
)
def test_any_dag_is_walked_once_in_order_within_the_budget(shape, lanes, longest_first):
    tasks = [
        task(str(i), *(str(j) for j in sorted(set(inputs)) if j < i), memory=memory)
        for i, (memory, inputs) in enumerate(shape)
    ]
    tasks = [replace(one, seconds=float(one.memory_bytes)) for one in tasks]
    started, most, outcomes = walk(tasks, budget=30, lanes=lanes, longest_first=longest_first)
    assert sorted(started) == sorted(t.key for t in tasks) == sorted(outcomes)
    assert most <= 30
    position = {key: i for i, key in enumerate(started)}
    assert all(position[upstream] < position[t.key] for t in tasks for upstream in t.inputs.values())


def test_what_begins_the_longest_way_to_the_end_goes_before_what_stands_before_it():
    tasks = [
        replace(task(key, *needs), seconds=seconds)
        for key, seconds, needs in [
            ("small", 5.0, []), ("its score", 1.0, ["small"]), ("long", 4.0, []), ("half", 2.0, ["long"]), ("score", 2.0, ["half"])
        ]
    ]  # fmt: skip
    assert walk(tasks, budget=9, lanes=1)[0] == [one.key for one in tasks]
    assert walk(tasks, budget=9, lanes=1, longest_first=True)[0] == ["long", "small", "half", "score", "its score"]
    cannot = replace(task("compile", "small"), seconds=99.0, unavailable="needs macOS")
    assert walk([*tasks, cannot], budget=9, lanes=1, longest_first=True)[0][:4] == ["long", "small", "half", "score"]


def test_what_is_done_beside_preparation_has_ended_when_the_first_timing_begins(tmp_path, monkeypatch):
    stage, over, order = Stage(monkeypatch, tmp_path), threading.Event(), []
    stage.beside = lambda: (over.wait(10), time.sleep(0.2), order.append("beside"))
    stage.before = lambda name: (order.append(name), name == "score" and over.set())
    stage.freeze = lambda: order.append("freeze")
    stage.sweep("one")
    assert order == ["convert", "chunk", "score", "beside", "freeze", "latency"]


def test_an_interruption_that_meets_no_child_ends_the_sweep_without_waiting_for_what_runs_beside(tmp_path, monkeypatch):
    stage, held, ended = Stage(monkeypatch, tmp_path), threading.Event(), []

    def interrupt():
        while "score" not in stage.called:
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)
        held.wait(60)
        ended.append(1)

    stage.beside = interrupt
    with pytest.raises(KeyboardInterrupt):
        stage.sweep("interrupted")
    assert not ended
    held.set()
    stage.beside = None
    assert stage.sweep("again")["score"].done


def test_an_exception_in_one_lane_stops_the_others_from_taking_more():
    def perform(item: Task) -> Outcome:
        if item.key == "0":
            raise RuntimeError("the store is gone")
        time.sleep(0.05)
        return Outcome(StageStatus.OK)

    outcomes: dict[str, Outcome] = {}
    work = SlotQueue([task(str(i)) for i in range(50)], outcomes, budget=100)
    threads = [threading.Thread(target=work.run_slot, args=(perform,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert isinstance(work.error, RuntimeError) and len(outcomes) < 50


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (StageStatus.OK, True),
        (StageStatus.CACHED, True),
        (StageStatus.UNAVAILABLE, False),
        (StageStatus.BLOCKED, False),
    ],
)
def test_only_what_was_made_can_be_built_upon(status, expected):
    assert Outcome(status, folder=Path("x")).done is expected


def test_timings_go_round_after_round_each_in_an_order_of_its_own():
    names = [f"{cell}{number}" for cell in "abcdef" for number in (1, 2, 3)]
    tasks = [task("place"), *(task(name) for name in names)]
    for item in tasks[1:]:
        item.round = int(item.key[1])
    order = [item.key for item in order_in_rounds(tasks)]
    assert order == [item.key for item in order_in_rounds(tasks)] and sorted(order) == sorted(t.key for t in tasks)
    assert order[0] == "place" and [name[1] for name in order[1:]] == ["1"] * 6 + ["2"] * 6 + ["3"] * 6
    assert len({tuple(name[0] for name in order[i : i + 6]) for i in (1, 7, 13)}) > 1


@pytest.mark.parametrize(
    ("first", "status", "said"),
    [
        (Outcome(StageStatus.OK, result=TaskResult("latency", "k", "ok", seconds=30.0)), None, ""),
        (
            Outcome(StageStatus.OK, result=TaskResult("latency", "k", "ok", seconds=30.1)),
            "skipped",
            "the first process took 30 s: latency.repeats=auto",
        ),
        (Outcome(StageStatus.CRASHED, "SIGSEGV"), "blocked", "the first process that timed it ended as crashed"),
        (Outcome(StageStatus.UNAVAILABLE, "needs macOS"), "unavailable", "needs macOS"),
        (Outcome(StageStatus.SKIPPED, "budget_minutes was spent"), "skipped", "budget_minutes was spent"),
    ],
)
def test_the_first_timing_decides_about_further_ones(first, status, said):
    worker = TaskRunner(SimpleNamespace(tasks={}), SimpleNamespace(earlier_result=lambda item: None),
                    SimpleNamespace(), None, 0, 1, None, outcomes={"first": first})  # fmt: skip
    more = task("more")
    more.stage, more.more_of = "latency", "first"
    outcome = worker.resolve_without_running(more)
    assert outcome is None if status is None else (outcome.status, outcome.reason.startswith(said)) == (status, True)
    more.more_of = ""  # asked for outright
    assert worker.resolve_without_running(more) is None


def test_once_the_budget_is_spent_nothing_is_begun_but_what_is_stored_counts(tmp_path):
    run = SimpleNamespace(earlier_result=lambda item: None)
    with Store(tmp_path) as store:
        result = TaskResult("convert", "old", "ok", seconds=1.0)
        aside = store.stage_aside("convert", "old")
        (aside / "weight.bin").write_bytes(b"weights")
        store.commit(aside, "convert", "old", result)
        worker = TaskRunner(SimpleNamespace(tasks={}), run, store, None, 0, 1, None, deadline=time.monotonic() + 60)
        assert worker.resolve_without_running(task("new")) is None
        worker.deadline = time.monotonic()
        outcome = worker.resolve_without_running(task("new"))
        assert outcome.status is StageStatus.SKIPPED and "budget_minutes" in outcome.reason
        assert worker.resolve_without_running(task("old")).status is StageStatus.CACHED


LINE = "Error=_ANECompiler : ANECCompile() FAILED."


def test_what_core_ml_printed_while_it_was_scored_is_found_fresh_cached_and_after_a_crash(monkeypatch, tmp_path):
    stage = Stage(monkeypatch, tmp_path)
    stage.prints = {"score": f"noise\n{LINE}\n"}
    for run in ("fresh", "cached"):
        outcome = stage.sweep(run)["score"]
        (finding,) = gather.printed([(played.task("score"), outcome)])
        assert LINE in finding["line"] and finding["ours"], run
    assert outcome.status == "cached"
    stage.stored("score").joinpath("weight.bin").unlink()
    stage.ends = {"score": "crashed"}
    outcome = stage.sweep("crashed")["score"]
    assert outcome.status == "crashed" and gather.printed([(played.task("score"), outcome)])


@pytest.mark.parametrize(
    ("hold", "sentence"),
    [
        (
            lambda store: store.lock("convert", "convert" + "0" * 20),
            "another sweep is making convert tiny: waiting for it",
        ),
        (lambda store: store.machine_lock(shared=False), "another sweep is timing: preparing waits for it"),
        (lambda store: store.machine_lock(shared=True), "another sweep uses this cache: timing waits for it"),
    ],
)
def test_whoever_waits_for_another_sweep_says_so_once(monkeypatch, tmp_path, hold, sentence):
    stage, said = Stage(monkeypatch, tmp_path), threading.Event()
    say = stage.say
    monkeypatch.setattr(stage, "say", lambda line: (say(line), said.set()))
    with Store(tmp_path / "cache") as other:
        sweep = threading.Thread(target=stage.sweep, args=("run",))
        with hold(other):
            sweep.start()
            assert said.wait(20)
        sweep.join(20)
    assert not sweep.is_alive() and stage.said == [sentence] and stage.called[-1] == "latency"

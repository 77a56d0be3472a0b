"""What a sweep shows while it runs: a line a finished cell in a log, one line on a terminal, nothing while timing."""

import io
import threading
from dataclasses import replace
from types import SimpleNamespace

import played
from rich.console import Console

from ane_sweep.bridge.plan import Outcome, Plan, expected_seconds
from ane_sweep.bridge.record import StageStatus
from ane_sweep.bridge.task import Task
from ane_sweep.planner import estimates
from ane_sweep.runner import display
from ane_sweep.runner import time_left as remaining
from ane_sweep.store.past import Past

OK, CACHED = Outcome(StageStatus.OK), Outcome(StageStatus.CACHED)


def cell(number: int) -> SimpleNamespace:
    return SimpleNamespace(key=f"cell{number}", label=lambda axes: f"chunks={number}")


def plan() -> Plan:
    """Two cells over one conversion, each with its timing."""
    tasks = {name: played.task(name.partition(" ")[0], alone="latency" in name) for name in NAMES}
    tasks = {name: replace(task, key=name, label=f"{name} tiny", seconds=9.0) for name, task in tasks.items()}
    chains = {f"cell{n}": ["convert", f"chunk {n}", f"latency {n}"] for n in (1, 2)}
    return Plan([cell(1), cell(2)], ["chunks"], tasks=tasks, chains=chains)


NAMES = ("convert", "chunk 1", "chunk 2", "latency 1", "latency 2")


def watched(*, terminal: bool, **kwargs) -> tuple[display.Lines, io.StringIO]:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=80, no_color=True, **kwargs)
    return display.make(plan(), console), screen


def run(view: display.Lines, names=NAMES, **ends: Outcome) -> None:
    for name in names:
        if name.startswith("latency 1"):
            view.freeze()
        view.begin(view.todo[name])
        view.end(view.todo[name], ends.get(name.replace(" ", ""), OK))
    view.close()


def test_a_log_has_one_line_for_each_finished_cell():
    view, screen = watched(terminal=False)
    run(view)
    lines = screen.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == ["[1/2] done", "[2/2] done"]
    assert "chunks=1" in lines[1] and " left" in lines[1] and " left" not in lines[2]
    assert lines[0].startswith("prepared; timing 2 processes, one at a time, about ")


def test_a_reason_that_costs_all_cells_is_said_once():
    view, screen = watched(terminal=False)
    died = Outcome(StageStatus.CRASHED, "convert ended with SIGSEGV")
    blocked = Outcome(StageStatus.BLOCKED, "needs convert, which ended as crashed")
    run(view, convert=died, chunk1=blocked, chunk2=blocked, latency1=blocked, latency2=blocked)
    said = screen.getvalue()
    assert said.count("crashed") == 2 and said.count("SIGSEGV") == 1 and "blocked" not in said


def test_what_comes_from_the_cache_is_summed_up():
    view, screen = watched(terminal=False)
    run(view, convert=CACHED, chunk1=CACHED, chunk2=CACHED)
    assert screen.getvalue().count("cache") == 1 and "(from the cache: 3 of 3 tasks)" in screen.getvalue()


def test_each_timing_has_a_still_line_on_a_terminal_drawn_before_it_begins():
    view, screen = watched(terminal=True)
    for name in NAMES[:3]:
        view.begin(view.todo[name])
        view.end(view.todo[name], OK)
    view.freeze()
    threads = set(threading.enumerate())
    view.begin(view.todo["latency 1"])
    assert "timing 1/2 1 tiny, about " in screen.getvalue()
    while_timing = screen.getvalue()
    assert not set(threading.enumerate()) - threads and not view.live.auto_refresh
    assert screen.getvalue() == while_timing, "something drew while a process was being timed"
    view.end(view.todo["latency 1"], OK)
    view.begin(view.todo["latency 2"])
    assert "timing 2/2 2 tiny, about " in screen.getvalue()
    view.end(view.todo["latency 2"], OK)
    view.close()
    assert "prepared 3 tasks in " in screen.getvalue()


def test_no_line_of_the_view_is_wider_than_the_terminal_and_no_colour_is_honoured():
    view, screen = watched(terminal=True)
    view.todo["convert"].label = "convert " + "x" * 300
    view.begin(view.todo["convert"])
    view.live.refresh()
    assert "x" * 80 not in screen.getvalue() and "\x1b[32m" not in screen.getvalue()
    view.close()


def test_the_rule_gives_the_seconds_of_a_task_without_a_record():
    task = replace(played.task("convert"), rule_s=80.0)
    assert expected_seconds(task) == 80.0
    assert expected_seconds(replace(task, seconds=7.0)) == 7.0


def tasks(*kinds: tuple[str, float, float | None], many: int = 4) -> list[Task]:
    """Tasks of a stage, the seconds by the rule, and those expected from past tasks."""
    return [replace(played.task(stage), rule_s=rule, seconds=took) for stage, rule, took in kinds for _ in range(many)]


def test_the_time_left_is_unknown_until_a_task_of_each_stage_has_ended_and_is_then_the_rule_scaled():
    todo = tasks(("convert", 5.0, None), ("convert", 40.0, None), ("chunk", 1.0, None))
    rest = remaining.TimeLeft(todo)
    rest.drop(todo[0], 10.0)
    assert rest.seconds() is None, "of a stage that has not run yet nothing is known"
    rest.drop(todo[8], 1.0)
    assert rest.seconds() == 3 * 10.0 + 4 * 80.0 + 3 * 1.0
    rest.drop(todo[4], 60.0)
    assert rest.seconds() == 3 * (2 + 1.5) / 2 * 5.0 + 3 * (2 + 1.5) / 2 * 40.0 + 3 * 1.0


def test_what_comes_from_the_cache_says_nothing_about_the_time_left():
    """A warm start once ended 20 tasks in no time, and the estimate grew when the first real one ended."""
    view, _ = watched(terminal=False)
    before = view.remaining.seconds()
    assert before == 5 * 9.0
    for name in ("convert", "chunk 1"):
        view.begin(view.todo[name])
        view.end(view.todo[name], CACHED)
    assert view.remaining.seconds() == 3 * 9.0


def test_a_task_that_takes_longer_than_it_ever_did_makes_the_time_left_unknown_and_takes_nothing_from_the_others():
    todo = tasks(("convert", 5.0, 10.0), ("chunk", 1.0, 1.0))
    rest = remaining.TimeLeft(todo)
    assert rest.seconds([(todo[0], 4.0)]) == 44 - 4
    assert rest.seconds([(todo[0], 24.0)]) == 44 - 10
    assert rest.seconds([(todo[0], 26.0)]) is None


def test_the_time_left_does_not_jump_when_another_kind_of_model_was_run_before():
    """A user read `1/16, 54 s left` and then `4/16, 12 min left`: nets of one size take times that differ tenfold."""
    many = {"fetch": 1, "reference": 1, "convert": 1, "chunk": 1, "predict": 2, "score": 2, "latency": 8}
    takes = {"fetch": 2.0, "reference": 20.0, "convert": 40.0, "chunk": 5.0, "predict": 3.0, "score": 60.0}
    takes |= {"latency": 50.0}
    history = {stage: [Past(stage, 9 * 10**7, took / 13, 1, "host bert.py:Net", 1.0)] for stage, took in takes.items()}
    todo = []
    for stage, count in many.items():
        known = estimates.seconds(history, stage, 1.0, "host nets.py:Net")
        todo += [replace(task, sort="host nets.py:Net") for task in tasks((stage, 1.0, known), many=count)]
    rest, left = remaining.TimeLeft(todo), sum(takes[task.stage] for task in todo)
    for done in todo:
        rest.drop(done, takes[done.stage])
        left -= takes[done.stage]
        said = rest.seconds()
        assert said is None or left / 2 <= said <= 2 * left, f"{said} s were said to be left of {left}"


def test_repeats_that_a_long_timing_does_not_take_are_not_counted_once_it_is_known():
    first = [replace(played.task("latency", alone=True), rule_s=2.0) for _ in range(6)]
    more = [replace(task, more_of="latency", round=n) for task in first for n in (2, 3, 4)]
    rest = remaining.TimeLeft([*first, *more])
    rest.drop(first[0], 40.0)
    assert rest.seconds() == 5 * 40.0, "and not 23 of them"
    cheap = remaining.TimeLeft([*first, *more])
    cheap.drop(first[0], 1.0)
    assert cheap.seconds() == 23.0


def test_one_bar_counts_all_tasks_from_the_first_to_the_last_timing():
    view, screen = watched(terminal=True)
    view.begin(view.todo["convert"])
    view.end(view.todo["convert"], OK)
    view.live.refresh()
    assert "1/5 preparing" in screen.getvalue()
    for name in NAMES[1:3]:
        view.begin(view.todo[name])
        view.end(view.todo[name], OK)
    view.freeze()
    view.begin(view.todo["latency 1"])
    assert "3/5 timing 1/2 1 tiny" in screen.getvalue()
    line = screen.getvalue().split("\n")[-1]
    assert line.count("━") == 7, "3 of 5 of 12 columns, without colour"
    view.close()

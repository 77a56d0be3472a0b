"""The parent's own work grows as the tasks do: counted in calls, as clocks on a busy machine say little."""

import io
import itertools
import sys
from dataclasses import replace

import played
from rich.console import Console

from ane_sweep.bridge.plan import Outcome, Plan
from ane_sweep.bridge.record import StageStatus
from ane_sweep.planner import config
from ane_sweep.runner import display
from ane_sweep.runner.slots import SlotQueue
from tests.bench.scale import exponent


def steps(do) -> int:
    """Calls of Python and C functions."""
    count = 0

    def counted(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


def a_plan(cells: int) -> Plan:
    (cell,) = config.load(["model=tiny-gpt2", "weights=random"]).cells
    several = [replace(cell, seed=number) for number in range(cells)]
    tasks, chains = {}, {}
    for one in several:
        chains[one.key] = []
        for stage in ("convert", "chunk", "latency"):
            task = replace(played.task(stage, alone=stage == "latency"), key=f"{stage}{one.seed}", inputs={})
            tasks[task.key] = task
            chains[one.key].append(task.key)
    return Plan(several, ["seed"], tasks=tasks, chains=chains)


def shown(plan: Plan) -> None:
    view = display.Lines(plan, Console(file=io.StringIO(), width=80))
    for task in plan.tasks.values():
        view.begin(task)
        view.end(task, Outcome(StageStatus.OK))


def handed_out(plan: Plan) -> None:
    """Each waits for the one behind it: whoever looks through all that wait, from the first, looks at them all each time."""
    tasks = list(plan.tasks.values())
    tasks = [replace(task, inputs={"next": after.key}) for task, after in itertools.pairwise(tasks)] + tasks[-1:]
    SlotQueue(tasks, {}, budget=1).run_slot(lambda task: Outcome(StageStatus.OK))


def test_what_is_shown_and_handed_out_grows_as_the_tasks_do():
    small, large = a_plan(20), a_plan(160)
    for do in (shown, handed_out):
        found = exponent([(60, steps(lambda do=do: do(small))), (480, steps(lambda do=do: do(large)))])
        assert found < 1.1, do.__name__

"""The timings of a search: whether a goal needs them, whether the plan has them, and the plan without them."""

from collections.abc import Sequence
from dataclasses import replace

from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.runtimes import traits
from ane_sweep.bridge.stages import STAGES
from ane_sweep.errors import ConfigError
from ane_sweep.search.goal import ESTIMATE, SPEED, Goal


def settle_goal(goal: Goal, plan: Plan, chips: Sequence[str]) -> Goal:
    """Return the goal with `latency_ms` as what it is for the cells of a plan, and a chip in each figure that needs one.

    Raises ConfigError if the goal needs a timing that the plan does not have, and if some cells answer by a timing and
    others by an estimate.
    """
    run = [cell for cell in plan.cells if cell.key in plan.chains]
    answers = {_answers_by_timing(cell, plan) for cell in run}
    if SPEED in goal.figures and len(answers) > 1:
        raise ConfigError(
            f"{SPEED}: some cells are timed and others estimated, which no order compares: take one runtime, or "
            f"{ESTIMATE} (minimise={ESTIMATE}) for all"
        )
    goal = (goal if True in answers else goal.by_estimates(chips)).of_chips(chips)
    if goal.timed and (untimed := [why for cell in run if (why := _explain_untimed(cell, plan))]):
        raise ConfigError(f"{goal.timed[0]}: {untimed[0]}")
    return goal


def without_timings(plan: Plan) -> Plan:
    """Return the plan without the tasks that run alone: timings and what Core ML says of this machine."""
    kept = {key: task for key, task in plan.tasks.items() if not STAGES[task.stage].alone}
    chains = {cell: [key for key in chain if key in kept] for cell, chain in plan.chains.items()}
    return replace(plan, tasks=kept, chains=chains, beside={cell: {} for cell in plan.beside}, whole=plan.key)


def find_runtime(cell_key: str, plan: Plan) -> str:
    """Return the runtime that runs a cell, from any task that names it: not every cell is timed."""
    params = (plan.tasks[key].params for key in plan.chains[cell_key])
    return next(str(one["runtime"]) for one in params if "runtime" in one)


def _answers_by_timing(cell: Cell, plan: Plan) -> bool:
    """Return True if a cell's timing will be its headline latency (see results/headline.py)."""
    return cell.latency["repeats"] != 0 and (cell.runtime != "auto" or traits(find_runtime(cell.key, plan)).coreml)


def _explain_untimed(cell: Cell, plan: Plan) -> str | None:
    """Return why a cell has no timing that a goal can rest on, or None if it has one."""
    if cell.latency["repeats"] == 0:
        return "latency=off times nothing; leave that out"
    if _answers_by_timing(cell, plan) or cell.latency["repeats"] != "auto":
        return None
    return (
        "with runtime=auto nothing is measured on this host, the program is only run once to see that it does; add "
        f"runtime={find_runtime(cell.key, plan)} to time it here, or minimise={ESTIMATE}"
    )

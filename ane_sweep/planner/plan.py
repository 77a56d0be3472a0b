"""The plan of cells as tasks: a DAG in which cells with equal needs share one task. Pure functions.

Tasks with equal keys are shared; tasks.py decides what is part of a key.
"""

from collections.abc import Mapping, Sequence

from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.examples import Examples
from ane_sweep.bridge.plan import Places, Plan, Source
from ane_sweep.errors import ConfigError
from ane_sweep.machine.host import TOOLS
from ane_sweep.planner import checks, chunking, estimates, scoring
from ane_sweep.planner.tasks import Shared, tasks_of


def make_plan(
    cells: Sequence[Cell],
    axes: list[str],
    sources: Mapping[str, Source],
    *,
    host: str,
    toolchain: Mapping[str, str | None],
    predict_for: Sequence[str] = (),
    history: estimates.History | None = None,
    notes: Sequence[str] = (),
    examples: Mapping[str, Examples] | None = None,
    places: Places | None = None,
) -> Plan:
    """Plan every cell. Raises ConfigError for unknown families and runtimes; impossible combinations are `refused`.

    sources   cell key -> its resolved weights
    host      digest of the machine that will time; part of the keys of tasks that depend on it
    examples  cell key -> the file that it is scored on, if it requests a score
    places   with a fleet, value of `machine` -> the place with that machine; None: this machine does everything
    predict_for  the chips to predict placement for; further ones add no conversion and no timing
    """
    tools = {name: toolchain.get(name) for name in TOOLS}
    shared = Shared(axes, host, tools, list(predict_for), estimates.Costs(history or {}), examples or {})
    plan = Plan(list(cells), axes, sources=dict(sources), notes=list(notes))
    problems = dict.fromkeys(problem for cell in cells for problem in checks.unknown_names(cell))
    problems |= dict.fromkeys(checks.unknown_chips(predict_for))
    if problems:
        raise ConfigError(list(problems))
    for cell in cells:
        place = None if places is None else places[cell.machine]
        if isinstance(place, str):  # no worker fits
            plan.refused[cell.key] = place
            continue
        runtime = checks.resolved_runtime(cell, place)
        source = sources[cell.key]
        reason = (
            checks.elsewhere(cell, source, runtime, place)
            or checks.refusal(cell, source, runtime, place)
            or scoring.refusal(cell, source, shared.examples.get(cell.key))
        )
        if reason:
            plan.refused[cell.key] = reason
            continue
        chain = tasks_of(cell, source, runtime, shared if place is None else shared.at(place))
        for task in (*chain.tasks, *chain.beside.values()):
            plan.tasks.setdefault(task.key, task).also_for(task)
        if place is not None:
            plan.places[cell.key] = place
        plan.chains[cell.key] = [task.key for task in chain.tasks]
        plan.beside[cell.key] = {units: task.key for units, task in chain.beside.items()}
    run = [cell for cell in cells if cell.key in plan.chains]  # what is refused has its reason, and needs no note
    plan.notes += checks.notes(run, axes, plan.sources.values(), plan.places)
    plan.notes += chunking.notes((cell, sources[cell.key]) for cell in run)
    return plan

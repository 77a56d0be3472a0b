"""A search from its words to its answer: the main path with another way to run a plan."""

from pathlib import Path
from typing import Any

from ane_sweep import engine
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.record import Record
from ane_sweep.engine import TERMINAL, Terminal
from ane_sweep.planner.matrix import Request
from ane_sweep.planner.settle import plan_for
from ane_sweep.search import answer
from ane_sweep.search.goal import Goal
from ane_sweep.search.search import Search
from ane_sweep.store.cache import Store, open_store
from ane_sweep.store.runs import Run


def best(
    request: Request, goal: Goal, out: Path, args: list[str], audience: Terminal = TERMINAL
) -> tuple[Search, list[Record]]:
    """Search a matrix: (what was done, the records of all its cells)."""
    made: list[Search] = []

    def execute(plan: Plan, run: Run, settings: dict[str, Any], store: Store, audience: Terminal) -> list[Record]:
        made.append(Search(plan, run, store, settings, goal, audience))
        records = made[0].go()
        answer.write(made[0], records)
        return records

    with open_store(out) as store:
        store.sweep_tmp()
        plan = plan_for(request, store, out)
        run, records, fresh = engine.perform(plan, request.settings, store, out, args, audience, execute)
        engine.publish(run, records, fresh, request.settings, store, audience)
        return made[0] if made else Search(plan, run, store, request.settings, goal, audience), records

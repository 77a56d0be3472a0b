"""A search from its command-line words to its answer: `api`'s usual way, with another way to run a plan."""

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ane_sweep import engine
from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.plan import Plan
from ane_sweep.bridge.record import Record
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.engine import Terminal
from ane_sweep.errors import ConfigError
from ane_sweep.planner.matrix import Request
from ane_sweep.planner.settle import plan_for
from ane_sweep.planner.space import Drawn, Space
from ane_sweep.results import search_log
from ane_sweep.search import answer, timings
from ane_sweep.search.drawn import Free
from ane_sweep.search.goal import Goal
from ane_sweep.search.search import Search
from ane_sweep.store.cache import Store, open_store
from ane_sweep.store.runs import Run


class Searcher(Terminal):
    """The command line's display of a search, whose answer is the search's own (answer.py)."""

    def records(self, folder: Path, records: list[Record]) -> None:
        engine.show(folder, records, answered=False)


SEARCHER = Searcher()
_FIRSTS = 100  # cells that are looked at for one that is not refused


def best(
    request: Request, goal: Goal, out: Path, args: list[str], space: Space | None = None, audience: Terminal = SEARCHER
) -> tuple[Search, list[Record]]:
    """Search a matrix or a space of free values and return (the search, the records of all its cells).

    request   the cells; for a space its first cell
    """
    made: list[Search] = []
    request = _for_chip(request, goal)
    chips = request.settings.chips

    def searching(plan: Plan, run: Run, settings: RunSettings, store: Store) -> Search:
        if space is None:
            return Search(plan, run, store, settings, wanted, audience)

        def planned(cells: Sequence[Cell]) -> Plan:
            return needed(plan_for(replace(request, cells=list(cells), notes=[]), store, out))

        return Free(plan, run, store, settings, wanted, audience, space=space, planned=planned)

    def needed(plan: Plan) -> Plan:
        return plan if wanted.timed else timings.without_timings(plan)

    def execute(plan: Plan, run: Run, settings: RunSettings, store: Store, audience: Terminal) -> list[Record]:
        made.append(searching(plan, run, settings, store))
        records = made[0].go()
        answer.write(made[0], records)
        return records

    with open_store(out) as store:
        store.sweep_tmp()
        plan = plan_for(request, store, out) if space is None else _first_plan(space, goal, store, out)
        wanted = timings.settle_goal(goal, plan, chips)
        if space is not None:
            plan.searched = f"{space}; {wanted}"
        plan = needed(plan)
        run, records, fresh = engine.perform(plan, request.settings, store, out, args, audience, execute)
        engine.publish(run, records, fresh, request.settings, store, audience)
        found = made[0] if made else searching(plan, run, request.settings, store)
        if not made:
            found.read(search_log.read(run.folder), records)
        return found, records


def _for_chip(request: Request, goal: Goal) -> Request:
    """Return the request with the chip of the goal first among its chips, so that records and answers are about it."""
    chips = request.settings.chips
    named = [chip for chip in chips if chip == goal.chip]
    chips = [*named, *(chip for chip in chips if chip not in named)]
    return replace(request, settings=replace(request.settings, chips=chips))


def first(space: Space) -> Request:
    """Return the request in the middle of a space, for the first choice that gives a valid cell. Raises ConfigError if none does."""
    return next(_cells(space, space.middles()))


def _cells(space: Space, drawings: Iterable[Drawn]) -> Iterator[Request]:
    """Yield a request for each drawing that gives a valid cell, with this drawing as the search's start. Raises
    ConfigError if none does.
    """
    problems: dict[str, None] = {}
    made = 0
    for _, drawn in zip(range(_FIRSTS), drawings):
        try:
            request = space.request(drawn)
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
            continue
        request.notes += [
            f"free: {space}: cells are planned as they are asked for, and this is the first",
            *space.notes,
        ]
        space.start, made = dict(drawn), made + 1
        yield request
    if not made:
        raise ConfigError(list(problems))


def _first_plan(space: Space, goal: Goal, store: Store, out: Path) -> Plan:
    """Return the plan of the first cell that is not refused, or of the last one tried. Raises ConfigError."""
    others = space.all() if space.count() < math.inf else (space.any(random.Random(n)) for n in range(_FIRSTS))
    for request in _cells(space, itertools.chain(space.middles(), others)):
        plan = plan_for(_for_chip(request, goal), store, out)
        if plan.chains:
            break
    return plan

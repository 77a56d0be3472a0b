"""The view of `ane-sweep plan`: tasks, shared work, cost, refused cells and their reasons."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ane_sweep import memory_limits
from ane_sweep.bridge.plan import Plan, expected_seconds
from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import CHEAP_S, Task
from ane_sweep.machine import apple
from ane_sweep.machine.memory import memory_budget
from ane_sweep.planner.matrix import Request
from ane_sweep.planner.settle import plan_for
from ane_sweep.store import files
from ane_sweep.store.cache import open_store
from ane_sweep.terminal import count, duration, size

_IMPORTS_S = 4.0


def make_plan_view(request: Request, out: Path) -> tuple[Plan, str, dict[str, object]]:
    """Return the plan of a request, its text and its JSON values; run nothing."""
    with open_store(out) as store:
        plan = plan_for(request, store, out, to_show=True)
        most = memory_budget(request.settings.memory_gib), memory_limits.host_bytes()
        return plan, describe(plan, store.has, files.free_bytes(out), most), to_dict(plan, store.has)


def describe(
    plan: Plan, is_cached: Callable[[Task], bool], free_bytes: int | None = None, memory: tuple[int, int] | None = None
) -> str:
    """Return the plan as text. `is_cached` tells which tasks the store already holds.

    memory   bytes that all parallel tasks may use together, and this host's memory
    """
    lines = [count(len(plan.cells), "cell") + (f" over {', '.join(plan.axes)}" if plan.axes else "")]
    shared = Counter(key for chain in plan.chains.values() for key in chain)
    todo = [task for task in plan.tasks.values() if task.unavailable is None and not is_cached(task)]
    for stage, declared in STAGES.items():
        tasks = [task for task in plan.tasks.values() if task.stage == stage]
        if all(task.unavailable == apple.NO_MAC for task in tasks):  # off a Mac nobody asked for them
            continue
        keys = {task.key for task in tasks}
        uses = sum(not keys.isdisjoint(chain) for chain in plan.chains.values())
        line = f"  {len(tasks):>5} {declared.many:<16} for {count(uses, 'cell')}"
        if alone := sum(not shared[task.key] for task in tasks):
            line += f"; {alone} of them for evidence=auto to compare with"
        if perhaps := sum(bool(task.more_of) for task in tasks):
            line += f"; {perhaps} of them only where the first one takes up to {CHEAP_S:.0f} s (latency.repeats=auto)"
        if declared.pooled and (few := sum(not task.round for task in tasks)):
            line += "; " + ("each is" if few == len(tasks) else f"{few} of them are")
            line += " a few calls, to check that it runs here (latency.repeats=4 measures)"
        run = sum(task.stage == stage for task in todo)
        if tasks[0].unavailable:
            line += f"; unavailable: {tasks[0].unavailable}"
        elif run < len(tasks):
            line += f"; {len(tasks) - run} cached, {run} to run"
        lines.append(line)
    lines += [_cost(todo, free_bytes), *(_too_large(todo, *memory) if memory else ()), *_cells(plan)]
    if plan.refused:
        lines.append(f"{len(plan.refused)} refused:")
        by_key = {cell.key: cell for cell in plan.cells}
        lines += [f"  {by_key[key].label(plan.axes or ['model'])}: {reason}" for key, reason in plan.refused.items()]
    return "\n".join([*lines, *(f"note: {note}" for note in plan.notes)])


def to_dict(plan: Plan, is_cached: Callable[[Task], bool]) -> dict[str, object]:
    """Return the plan as JSON values. A task's `seconds` is its rule scaled by recorded tasks, or None; their sum uses the rule then."""
    todo = [task for task in plan.tasks.values() if task.unavailable is None and not is_cached(task)]
    users = Counter(key for chain in plan.chains.values() for key in chain)
    tasks = [
        {
            "stage": task.stage, "label": task.label, "cells": users[task.key], "cached": is_cached(task),
            "unavailable": task.unavailable, "seconds": task.seconds, "disk_bytes": task.disk_bytes,
            "memory_bytes": task.memory_bytes,
        }
        for task in plan.tasks.values()
    ]  # fmt: skip
    cells = [{axis: cell.value(axis) for axis in plan.axes or ["model"]} for cell in plan.cells]
    refused = [
        {"cell": cell, "reason": plan.refused[one.key]}
        for one, cell in zip(plan.cells, cells)
        if one.key in plan.refused
    ]
    spent = {"seconds": _sum_seconds(todo), "disk_bytes": sum(task.disk_bytes for task in todo)}
    return {"cells": cells, "tasks": tasks, "refused": refused, "notes": plan.notes, **spent}


def _sum_seconds(todo: list[Task]) -> float:
    """Return the seconds of tasks one after another, with the imports that are made once for each kind of task and round."""
    kinds = {(STAGES[task.stage].warm, task.round) for task in todo}
    return sum(map(expected_seconds, todo)) + _IMPORTS_S * len(kinds)


def _cost(todo: list[Task], free_bytes: int | None) -> str:
    guessed = any(task.seconds is None for task in todo)
    basis = (
        "by a rule alone, as not all of it ran here before" if guessed else "by a rule, scaled to what ran here before"
    )
    time = f"about {duration(_sum_seconds(todo))} (one lane; {basis})"
    disk = sum(task.disk_bytes for task in todo)
    line = f"  disk {size(disk)}, time {time}, largest process {size(max((t.memory_bytes for t in todo), default=0))}"
    if free_bytes is not None and disk > free_bytes:
        line += f"\nnote: only {size(free_bytes)} are free where the outputs go; free space or choose another folder with out=PATH"
    return line


def _too_large(todo: list[Task], budget: int, host: int) -> list[str]:
    """Return a note on tasks that may need more memory than allowed or present; they run anyway."""
    over = [task for task in todo if task.memory_bytes > min(task.memory_limit(budget), host)]
    if not over:
        return []
    largest = max(over, key=lambda task: task.memory_bytes)
    others = f", and {len(over) - 1} more tasks are too large as well" if len(over) > 1 else ""
    keys = f"memory_gib or limits.{largest.stage}.memory_gib"
    choices = f"a larger {keys}" if largest.memory_bytes <= host else "a host with more memory"
    in_files = STAGES[largest.stage].holds == "few blocks"
    some = " (weights beyond the first GiB lie in files, whose memory the system can take back)" if in_files else ""
    return [
        f"note: {largest.label} is expected to use {size(largest.memory_bytes)} of memory{some}; it may use "
        f"{size(largest.memory_limit(budget))} ({keys}) and this host has {size(host)}{others}: what is killed for it ends "
        f"as out_of_memory. Choices: a smaller model, {choices}"
    ]


def _cells(plan: Plan) -> list[str]:
    rows = [f"  {cell.label(plan.axes)}" for cell in plan.cells if cell.key not in plan.refused and plan.axes]
    if len(rows) > 40:
        rows = [*rows[:20], f"  ... {len(rows) - 40} more ...", *rows[-20:]]
    return rows

"""Comparison of a compiled program with the ops it came from: predicted tasks, real tasks, and the op of each task.

A .hwx names no ops (its symbols are hashes), so tasks are matched by order, engine, and output shape, which both sides
have. The op named for a task is therefore an interpretation, not a fact of the file; the counts are facts.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ane_sweep.hwx.program import CompiledProgram
from ane_sweep.hwx.tasks import TaskDescriptor
from ane_sweep.placement import chips, tasks
from ane_sweep.placement.predict import Prediction
from ane_sweep.placement.rows import count_text
from ane_sweep.placement.sites import Site
from ane_sweep.placement.tasks import Step

MOST_CELLS = 4_000_000  # tasks times ops: more are counted, not matched
GAP, SAME_SIZE, OTHER_SIZE, SAME_CHANNELS, SAME_ENGINE = -1, 2, -4, 1, 1
HOW = "by order, engine and the shape made: the file names no ops"
PREDICTED = "predicted for the Neural Engine"
LEGAL = "that the Neural Engine takes (predicted to stay on the CPU)"


@dataclass(frozen=True)
class Match:
    """A task and the ops matched with it: the main op first, then those done in the same task; empty if no op fits."""

    task: TaskDescriptor
    ops: tuple[Site, ...]


def chip_of(family: str) -> str | None:
    """Return the first Mac chip of a family (`H13`: m1), or None if the table of chips lacks the family."""
    found = [chip for chip in chips.published().values() if chip.family == family]
    return next((chip.chip for chip in found if not chip.ios), found[0].chip if found else None)


def compare_with_tasks(prediction: Prediction, programs: Sequence[CompiledProgram]) -> dict[str, Any]:
    """Compare predicted ops with compiled tasks; the result is the content of the record and of `hwx --program --json`.

    Counts are totals over all programs.
    """
    rows, which = [row for row in prediction.rows if row.preferred == "ane"], PREDICTED
    if not rows:
        rows, which = [row for row in prediction.rows if "ane" in row.verdict.supported], LEGAL
    expected = tasks.steps([row.site for row in rows], prediction.chip.generation)
    found = [task for program in programs for task in program.tasks]
    real = sum(len(program.tasks) if program.declared_tasks is None else program.declared_tasks for program in programs)
    wanted = None if expected is None else sum(step.count for step in expected)
    content: dict[str, Any] = {
        "chip": prediction.chip.chip, "ops_are": which, "ane_ops": len(rows), "tasks": real, "ops_per_task": _ratio(len(rows), real),
        "predicted_tasks": wanted, "predicted_ops_per_task": _ratio(len(rows), wanted), "matched": HOW,
    }  # fmt: skip
    slots = expected if expected is not None else [Step(row.site, None) for row in rows]
    matches = match(found, slots)
    if matches is None or len(found) != real:
        return {**content, "matched": "not: too many, or not all tasks are decoded", "by_op_type": None, "rows": None}
    counted = [step.site.type for step in slots for _ in range(step.count)]
    ops, planned = Counter(step.site.type for step in slots), Counter(counted)
    made = Counter(one.ops[0].type for one in matches if one.ops)
    by_op_type = {
        kind: {"ops": number, "predicted_tasks": None if expected is None else planned[kind], "tasks": made[kind]}
        for kind, number in ops.most_common()
    }
    listed = [
        {
            "task": one.task.index, "engine": one.task.engine, "operation": one.task.operation, "out": one.task.shape("out"),
            "ops": [site.name for site in one.ops], "op_types": [site.type for site in one.ops],
        }
        for one in matches
    ]  # fmt: skip
    return {**content, "by_op_type": by_op_type, "rows": listed}


def _ratio(ops: int, made: int | None) -> float | None:
    return round(ops / made, 3) if made else None


def match(found: Sequence[TaskDescriptor], steps: Sequence[Step]) -> list[Match] | None:
    """Match each task with its op, keeping both orders (Needleman and Wunsch). Return None above MOST_CELLS pairs."""
    slots = [step for step in steps for _ in range(step.count)]
    if len(found) * len(slots) > MOST_CELLS:
        return None
    inside: dict[int, list[Site]] = defaultdict(list)
    for step in steps:
        if step.into is not None:
            inside[id(step.into)].append(step.site)
    return [
        Match(task, () if step is None else (step.site, *inside[id(step.site)]))
        for task, step in zip(found, _align(found, slots, inside), strict=True)
    ]


def _align(found: Sequence[TaskDescriptor], slots: Sequence[Step], inside: dict[int, list[Site]]) -> list[Step | None]:
    """Align tasks with slots in order. Return the slot of each task, or None for an unmatched task."""
    fits = [[_fit(task, step, inside) for step in slots] for task in found]
    best = [[GAP * column for column in range(len(slots) + 1)]]
    for row in range(len(found)):
        line = [GAP * (row + 1)]
        for column, fit in enumerate(fits[row]):
            line.append(max(best[row][column] + fit, best[row][column + 1] + GAP, line[column] + GAP))
        best.append(line)
    chosen: list[int | None] = [None] * len(found)
    row, column = len(found), len(slots)
    while row and column:
        if best[row][column] == best[row - 1][column - 1] + fits[row - 1][column - 1]:
            row, column = row - 1, column - 1
            chosen[row] = column
        elif best[row][column] == best[row - 1][column] + GAP:
            row -= 1
        else:
            column -= 1
    return [None if place is None else slots[place] for place in _with_neighbours(chosen, fits)]


def _with_neighbours(chosen: list[int | None], fits: list[list[int]]) -> list[int | None]:
    """Give each unmatched task the slot of a neighbouring task if its output fits the same op."""
    for order in (range(len(chosen)), reversed(range(len(chosen)))):
        last = None
        for row in order:
            if chosen[row] is None and last is not None and fits[row][last] > 0:
                chosen[row] = last
            last = chosen[row]
    return chosen


def _fit(task: TaskDescriptor, step: Step, inside: dict[int, list[Site]]) -> int:
    score = SAME_ENGINE if task.engine == step.engine else 0
    made = [tensor for site in (step.site, *inside[id(step.site)]) for tensor in site.outputs[:1]]
    made += step.site.data  # a task that only brings an operand in makes what is read
    sizes = [task.geometry.get(f"out_{axis}") for axis in "chw"]
    if None in sizes or not made:
        return score
    elements = math.prod(size or 1 for size in sizes)
    if not (fitting := [tensor.shape for tensor in made if tensor.elements == elements]):
        return score + OTHER_SIZE
    channels = {length for shape in fitting for length in (*shape[-3:][:1], *shape[-1:])}
    return score + SAME_SIZE + (SAME_CHANNELS if sizes[0] in channels else 0)


def text(content: dict[str, Any]) -> str:
    """Format the comparison for people: counts, then one line for each task."""
    wanted = content["predicted_tasks"]
    predicted = "not predicted for this family"
    if wanted is not None:
        predicted = f"{wanted} predicted ({content['predicted_ops_per_task']} ops each)"
    ops, made = count_text(content["ane_ops"], "op"), count_text(content["tasks"], "task")
    lines = [
        f"{ops} {content['ops_are']}, in {made} ({content['ops_per_task']} ops each); {predicted}",
        f"matched {content['matched']}",
    ]
    for kind, row in (content["by_op_type"] or {}).items():
        planned = "-" if wanted is None else row["predicted_tasks"]
        lines.append(f"  {row['ops']} {kind}: {count_text(row['tasks'], 'task')}, predicted {planned}")
    for row in content["rows"] or []:
        here = ", ".join(f"{kind} {name}" for kind, name in zip(row["op_types"], row["ops"])) or "no op fits"
        lines.append(f"  task {row['task']} ({row['engine']}, {row['operation']}, {row['out']}): {here}")
    return "\n".join(lines)

"""Choose which values of a plan may lie with their channels last in memory, as convolutions leave them.

Such values pass through ops that give the same bits in any order of memory. Every other op, and the world outside, gets
contiguous values, so that a chunk that begins anywhere computes the same bits.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from torch import Tensor

from ane_sweep.mil.graph import Op
from ane_sweep.reference.site import Step, align


def find_loose(built: Iterable[tuple[Step, Op]], outputs: Collection[str]) -> set[str]:
    """Return the names of values that need not be contiguous; outputs of the plan are."""
    loose: set[str] = set()
    for step, op in built:
        if _leaves_order(step, loose) and not set(op.outputs) & set(outputs):
            loose.update(op.outputs)
    return loose


def fit_order(step: Step, op: Op, loose: Collection[str]) -> Step:
    """Return the step with a copy to contiguous memory of each argument or result that needs one."""
    if _leaves_order(step, loose):
        is_kept = all(name in loose for name in op.outputs)
        return step if is_kept else align_result(step)
    given = [name in loose for name in step.arguments]
    if not any(given):
        return step
    return replace(
        step, run=lambda *values: step.run(*[_align(x) if is_loose else x for x, is_loose in zip(values, given)])
    )


def align_result(step: Step) -> Step:
    """Return the step with a contiguous result; its arguments may lie in any order."""
    if step.layout == "plain":
        return step
    return replace(step, run=lambda *values: _align(step.run(*values)))


def _leaves_order(step: Step, loose: Collection[str]) -> bool:
    return step.layout == "channels_last" or (step.layout == "any" and any(name in loose for name in step.arguments))


def _align(value: object) -> object:
    return align(value) if isinstance(value, Tensor) else value

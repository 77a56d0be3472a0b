"""Observe every value of a run: its numbers, and how far each op is from the same op in fp32.

Two programs of the same ops are driven in step, one as declared and one in fp32, so no more than the values alive at
one time are held. For every op two distances are taken, both relative to the largest magnitude of the fp32 value:

    drift   from the fp32 run: the cost of all ops up to here together
    own     from the op in fp32 on this run's own arguments: the cost of this op by itself

and `jump`, the factor by which the drift exceeds that of the op's arguments. It is large for an op that amplifies small
differences (two large values cancel, a threshold is crossed) without losing accuracy itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from ane_sweep.errors import PackageError
from ane_sweep.mil.graph import Op
from ane_sweep.reference import matching
from ane_sweep.reference.layout import StepResult
from ane_sweep.reference.model import Model, ModelState
from ane_sweep.stats.psnr import decibels

HALF_MAX = 65504.0


@dataclass(frozen=True)
class ObservedValue:
    """One value of a run.

    `saturated` counts elements at fp16's largest magnitude; drift, own, jump and psnr_db are None without a second run,
    or for values that are not floats.
    """

    index: int
    type: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    nan: int
    infinite: int
    saturated: int
    peak: float
    drift: float | None = None
    own: float | None = None
    jump: float | None = None
    psnr_db: float | None = None

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def describe_value(
    op: Op, name: str, value: object, drift: float | None = None, own: float | None = None, jump: float | None = None
) -> ObservedValue | None:
    """Return the description of a value, or None if it is no tensor."""
    tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
    if not isinstance(tensor, torch.Tensor):
        return None
    nan = infinite = saturated = 0
    peak = 0.0
    if tensor.numel() and tensor.dtype.is_floating_point:
        sizes = tensor.float().abs()
        finite = sizes.isfinite()
        nan, infinite = int(sizes.isnan().sum()), int(sizes.isinf().sum())
        saturated = int((sizes == HALF_MAX).sum()) if tensor.dtype == torch.float16 else 0
        peak = float(sizes[finite].max()) if bool(finite.any()) else math.nan
    elif tensor.numel() and tensor.dtype != torch.bool:
        peak = float(tensor.double().abs().max())
    dtype = str(tensor.dtype).removeprefix("torch.")
    return ObservedValue(
        op.index, op.type, name, tuple(tensor.shape), dtype, nan, infinite, saturated, peak, drift, own, jump
    )


def record_values(model: Model, inputs: Mapping[str, object], state: ModelState | None = None) -> list[ObservedValue]:
    """Return every value of one prediction of a Model, in order of execution (nested blocks included)."""
    found: list[ObservedValue] = []

    def note(op: Op, made: dict[str, object]) -> None:
        found.extend(seen for name, value in made.items() if (seen := describe_value(op, name, value)) is not None)

    model.trace(inputs, note, state)
    return found


def collect_values(
    model: Model, inputs: Mapping[str, object], names: list[str], state: ModelState | None = None
) -> dict[str, np.ndarray]:
    """Return intermediate values by name. Raises PackageError for names that no executed op makes."""
    kept: dict[str, np.ndarray] = {}

    def note(op: Op, made: dict[str, object]) -> None:
        kept.update({name: np.array(value) for name, value in made.items() if name in names})

    model.trace(inputs, note, state)
    missing = [name for name in names if name not in kept]
    if missing:
        raise PackageError(
            f"{model.path}: no op makes {missing[0]!r} while it runs (constants are computed before); "
            "the names are those of the program's values, not of its ops"
        )
    return kept


def measure_distance(reference: object, candidate: object) -> float | None:
    """Return the largest difference divided by the reference's largest magnitude; infinite if only one is NaN or infinite."""
    if not (isinstance(reference, torch.Tensor) and isinstance(candidate, torch.Tensor)):
        return None
    if not reference.dtype.is_floating_point or reference.shape != candidate.shape or not reference.numel():
        return None
    true, other = reference.double(), candidate.double()
    same = (true == other) | (true.isnan() & other.isnan())
    if bool(same.all()):
        return 0.0
    off = torch.where(same, 0.0, (true - other).abs())
    if not bool(off.isfinite().all()):
        return math.inf
    finite = true[true.isfinite()].abs()
    peak = float(finite.max()) if finite.numel() else 0.0
    return float(off.max()) / peak if peak else math.inf


def measure_drift(model: Model, exact: Model, inputs: Mapping[str, object]) -> list[ObservedValue]:
    """Compare every op of `model` with the same op of `exact`, a Model of the same program with numerics="fp32".

    A `cond` or `while_loop` is compared as one op, not op by op inside.
    """
    found = []
    drifts: dict[str, float] = {}
    for mine, true in pair_steps(model, exact, inputs):
        own = _measure_own_error(mine, true)
        before = max((drifts[name] for name in mine.op.reads if name in drifts), default=0.0)
        for name, value in mine.values.items():
            off = measure_distance(true.values.get(name), value)
            jump = None if off is None else max(0.0, off - before) if off < math.inf else off
            drifts[name] = before if off is None else off
            seen = describe_value(mine.op, name, value, off, own.get(name), jump if before < math.inf else 0.0)
            if seen is not None:
                found.append(replace(seen, psnr_db=measure_psnr(true.values.get(name), value)))
    return found


def measure_psnr(reference: object, candidate: object) -> float | None:
    """Return stats.psnr.psnr_db of tensors on any device; None for values without a distance."""
    off = measure_distance(reference, candidate)
    if off is None or not (isinstance(reference, torch.Tensor) and isinstance(candidate, torch.Tensor)):
        return None
    if off == 0.0:
        return math.inf
    true, other = reference.double(), candidate.double()
    peak, error = float(true.abs().max()), float((true - other).square().mean())
    return decibels(peak=peak, error=error)


def _measure_own_error(mine: StepResult, true: StepResult) -> dict[str, float | None]:
    """Return the distances of the exact op on the other run's widened arguments, or {} if it cannot run on them (states, lists)."""
    if len(mine.arguments) != len(true.arguments) or mine.op.type in ("read_state", "write_state"):
        return {}
    tensors = [value for value in mine.arguments if isinstance(value, torch.Tensor)]
    if len(tensors) < len(mine.arguments):
        return {}
    widened = [
        value.to(like.dtype) if isinstance(like, torch.Tensor) else value
        for value, like in zip(tensors, true.arguments)
    ]
    with torch.inference_mode():
        made = true.run(*widened)
    results = made if isinstance(made, tuple) else (made,)
    return {name: measure_distance(result, mine.values[name]) for name, result in zip(mine.op.outputs, results)}


def pair_steps(first: Model, second: Model, inputs: Mapping[str, object]) -> Iterator[tuple[StepResult, StepResult]]:
    """Return the steps of two models of the same program in pairs. Raises PackageError if the programs differ."""
    walks = [_walk(model, inputs) for model in (first, second)]
    ops = [[(op.type, tuple(op.outputs)) for op in model.ops] for model in (first, second)]
    if ops[0] != ops[1]:
        raise PackageError(
            f"{first.path} and {second.path} do not have the same ops; only their outputs can be compared"
        )
    return zip(*walks)


def _walk(model: Model, inputs: Mapping[str, object]) -> Iterator[StepResult]:
    taken = {name: inputs[name] for name in model.inputs if name in inputs}
    return model.plan.walk(model.prepare_inputs(taken, model.new_state() if model.states else None))


def rank_worst(
    found: list[ObservedValue], count: int, key: Callable[[ObservedValue], float | None] = lambda seen: seen.jump
) -> list[ObservedValue]:
    """Return the ops that lose most, worst first: by default those whose drift grows most."""
    rated = [seen for seen in found if key(seen)]
    return sorted(rated, key=lambda seen: -(key(seen) or 0.0))[:count]


@dataclass(frozen=True)
class ValueComparison:
    """The result of compare_values: `seen` has the candidate's values with one counterpart, in order; `matching` has the others."""

    seen: list[ObservedValue]
    matching: matching.Matching


def compare_values(reference: Model, candidate: Model, inputs: Mapping[str, object]) -> ValueComparison:
    """Compare the corresponding values of two different models.

    `drift` is the candidate's distance from the reference. Both run in step, and a value waits in memory until its
    counterpart is made.
    """
    found = matching.match_values(reference, candidate)
    wanted = set(found.of.values())
    walk = _walk(reference, inputs)
    waiting: dict[str, object] = {}
    seen = []
    for mine in _walk(candidate, inputs):
        for name, value in mine.values.items():
            key = found.of.get(name)
            while key is not None and key not in waiting and (step := next(walk, None)) is not None:
                waiting.update({made: true for made, true in step.values.items() if made in wanted})
            true = waiting.pop(key, None) if key is not None else None
            off = measure_distance(true, value)
            what = describe_value(mine.op, name, value, off) if off is not None else None
            if what is not None:
                seen.append(replace(what, psnr_db=measure_psnr(true, value)))
    return ValueComparison(seen, found)

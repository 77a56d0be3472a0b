"""Run a program beside its fp32 form: where fp16 overflows or vanishes, and where the Neural Engine's roundings part from it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ane_sweep import reference
from ane_sweep.errors import ConfigError
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.messages import has_effect
from ane_sweep.hazards.rule import Scene
from ane_sweep.mil.effects import LIMIT
from ane_sweep.reference import trace
from ane_sweep.reference.layout import StepResult
from ane_sweep.reference.model import Model

PART = 0.05
PRODUCTS = ("linear", "matmul", "conv", "conv_transpose", "einsum")


@dataclass(frozen=True)
class RangeFault:
    """One value whose fp16 numbers are lost. `kind`: "overflow", "vanished" or "accumulator"; `peak` in fp32; `share` of
    the elements.
    """

    kind: str
    name: str
    type: str
    peak: float
    share: float


def load_model(scene: Scene, numerics: str | None = None, effects: tuple[str, ...] | None = None) -> Model:
    """Return the scene's function for one mode of numerics. Raises ConfigError for a pipeline's part that is no program."""
    package = scene.graph.program.package
    model = reference.load(package, scene.function, numerics=numerics, effects=effects)
    if not isinstance(model, Model):
        raise ConfigError(f"{package.path}: it is no ML Program, and is not run")
    return model


def feed(scene: Scene, model: Model) -> dict[str, object]:
    """Return the inputs of a trial. Raises ConfigError if the scene has none."""
    if scene.trial is None:
        raise ConfigError(f"{scene.program.path}: no inputs to run it with")
    return scene.trial.feed(model.inputs)


def find_range_faults(model: Model, exact: Model, inputs: dict[str, object]) -> tuple[list[RangeFault], set[str]]:
    """Return where fp16 numbers are lost first, their operands having them, and the values all of whose numbers are right."""
    faults: list[RangeFault] = []
    lost: set[str] = set()
    right: set[str] = set()
    for mine, true in trace.pair_steps(model, exact, inputs):
        is_downstream = bool(mine.op.reads & lost)
        for name, value in mine.values.items():
            fault = _judge(mine, name, value, true.values.get(name))
            if fault is not None and fault.kind != "accumulator":
                lost.add(name)
            if fault is not None and not is_downstream:
                faults.append(fault)
            if _is_right(value, true.values.get(name)):
                right.add(name)
        if is_downstream:
            made = {name: value for name, value in mine.values.items() if isinstance(value, Tensor)}
            lost.update(name for name, one in made.items() if one.is_floating_point() and not one.isfinite().all())
    return faults, right


def find_harmful(graph: Graph, right: set[str]) -> set[str]:
    """Return the values whose error reaches an output, or a state, through values none of which is `right`."""
    harmful = graph.outputs - right
    for node in reversed(list(graph)):
        if has_effect(node.proto) or not harmful.isdisjoint(node.outputs):
            harmful |= node.names() - right
    return harmful


def _is_right(mine: object, true: object) -> bool:
    """Return True if every number is less than PART of itself away, small ones beside large ones too."""
    if not isinstance(mine, Tensor) or not isinstance(true, Tensor) or mine.shape != true.shape:
        return False
    return torch.allclose(mine.double(), true.double(), rtol=PART, atol=0.0, equal_nan=True)


def _judge(step: StepResult, name: str, mine: object, true: object) -> RangeFault | None:
    if not isinstance(mine, Tensor) or not isinstance(true, Tensor) or mine.dtype != torch.float16 or not mine.numel():
        return None
    sizes, finite = true.float().abs(), true.isfinite()
    peak = float(sizes[finite].max()) if bool(finite.any()) else 0.0
    if share := float((finite & ~mine.isfinite()).float().mean()):
        return RangeFault("overflow", name, step.op.type, peak, share)
    if share := float(((true != 0) & (mine == 0)).float().mean()):
        return RangeFault("vanished", name, step.op.type, peak, share)
    if step.op.type in PRODUCTS and peak >= LIMIT:
        return RangeFault("accumulator", name, step.op.type, peak, float((sizes >= LIMIT).float().mean()))
    return None

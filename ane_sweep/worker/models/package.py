"""An ML Program that somebody made (model=package), as a module is: graph inputs in order, a tuple of tensors out, computed
by the reference runtime in fp32. It is what its own compressed forms are scored against.

arch   inputs (bridge/shapes.py: of those that are drawn otherwise than the description says), samples, expected: digests
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ane_sweep import reference
from ane_sweep.bridge import shapes
from ane_sweep.errors import PackageError, StageError
from ane_sweep.mil import graph
from ane_sweep.reference.features import Feature
from ane_sweep.reference.simple_models import Suppression
from ane_sweep.worker.feeds.arrays import pad_rows, to_array
from ane_sweep.worker.models import module
from ane_sweep.worker.models._ports import Port, Ports

# Ops that hand indices on, on their way from an input to the table that they are looked up in.
_PASSES = {"cast", "identity", "reshape", "expand_dims", "squeeze", "greater_equal", "add", "select", "transpose"}
_LOOKUPS = {"gather": "axis", "gather_nd": "", "gather_along_axis": "axis"}
_FAR = 16
_FLAGS, _LEVELS = 2, 256  # whole numbers of which nothing is known are 0 or 1; an image's are below 256


class Given:
    """What worker/feeds/own_module.py runs: see models/module.py."""

    example: tuple[torch.Tensor, ...]

    def __init__(self, path: Path, wanted: dict[str, Any] | None):
        self.model, self.path = reference.load(path, numerics="fp32"), path.name
        said = {one.name: one for one in shapes.read(wanted)} if wanted else {}
        if unknown := [name for name in said if name not in self.model.inputs]:
            raise StageError(f"model.inputs.{unknown[0]}: the package takes {', '.join(self.model.inputs)}")
        self.rows = _most_rows(self.model)
        bounds = _tables(getattr(self.model, "models", [self.model])[0].program)
        wanted_inputs = {name: one for name, one in self.model.inputs.items() if not _may_be_left_out(one)}
        drawn = {name: _input(path, feature, bounds.get(name)) for name, feature in wanted_inputs.items()}
        self.taken = tuple(said.get(name, one) for name, one in drawn.items())
        self._leave_out_shapes()

    def called(self, *values: torch.Tensor) -> dict[str, np.ndarray]:
        named = {one.name: value.numpy() for one, value in zip(self.taken, values, strict=True)}
        made = self.model.predict(named, self.model.new_state() if self.model.states else None)
        found = {name: array for name, value in made.items() if (array := to_array(value)) is not None}
        return {name: pad_rows(array, self.rows) for name, array in found.items()} if self.rows else found

    def __call__(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(np.array(value)) for value in self.called(*values).values())

    def _leave_out_shapes(self) -> None:
        """Run it once at each of its shapes: a range may promise sizes that the program does not take."""
        kept = []
        for point in shapes.points(self.taken):
            example = tuple(map(torch.from_numpy, module.draw(self.taken, point, seed=0)))
            try:
                made = self.called(*example)
            except (PackageError, RuntimeError, ValueError, IndexError) as error:
                if not kept:
                    raise StageError(
                        f"{self.path}: its program does not run on its own default inputs: {error}"
                    ) from error
                continue
            if not kept:
                self._settle(example, point, made)
            kept.append(point)
        columns = zip(*kept) if kept else ()
        self.taken = tuple(
            shapes.Input(one.name, one.dtype, one.values, tuple(column) if one.flexible else one.shapes)
            for one, column in zip(self.taken, columns, strict=True)
        )

    def _settle(self, example: tuple[torch.Tensor, ...], point: Any, made: dict[str, np.ndarray]) -> None:
        if not made:
            raise StageError(f"{self.path}: its outputs are texts alone, which nothing can be compared with by PSNR")
        self.example = example
        ins = [
            Port(one.name, shape, one.dtype, one.shapes if one.flexible else ())
            for one, shape in zip(self.taken, point)
        ]
        self.ports = Ports(tuple(ins), tuple(Port(name, value.shape, str(value.dtype)) for name, value in made.items()))


def given(params: dict[str, Any], inputs: dict[str, Path]) -> Given:
    """Raises StageError, errors.PackageError, errors.UnsupportedOp."""
    return Given(inputs["package"], params["model"]["arch"]["inputs"])


def _may_be_left_out(feature: Feature) -> bool:
    return feature.is_optional and feature.kind not in ("array", "image")


def _most_rows(model: Any) -> int:
    """How many boxes a pipeline's suppression chooses from: its outputs have a row for each that stays. 0 without one."""
    last = getattr(model, "models", [model])[-1]
    return last.rows if isinstance(last, Suppression) else 0


def _input(path: Path, feature: Feature, table: int | None) -> shapes.Input:
    """How an input is drawn. Raises StageError for what is no array and no image."""
    if feature.kind not in ("array", "image"):
        raise StageError(
            f"{path.name}: its input {feature.name!r} is a {feature.kind}; arrays and images are drawn here"
        )
    points = _points(feature)
    if feature.kind == "image":
        return shapes.Input(feature.name, "int32", (0, _LEVELS), points)
    if feature.dtype.kind == "f":
        return shapes.Input(feature.name, "float32", (0, table - 0.5) if table else None, points)
    return shapes.Input(feature.name, "int32", (0, table or _FLAGS), points)


def _points(feature: Feature) -> tuple[tuple[int, ...], ...]:
    """Its default shape, and of several the others; of a range the smallest and, where it ends, the largest, but no axis more
    than _FAR times the default: a batch of up to 4,096 would take an hour.
    """
    if feature.enumerated:
        return tuple(dict.fromkeys([feature.shape, *feature.enumerated]))
    if not feature.ranges:
        return (feature.shape,)
    low = tuple(low for low, _ in feature.ranges)
    high = tuple(
        size if high is None else min(high, _FAR * size) for size, (_, high) in zip(feature.shape, feature.ranges)
    )
    return (feature.shape, low, high)


def _tables(program: graph.Program) -> dict[str, int]:
    """Input -> how many rows the smallest table has that it is looked up in."""
    leads: dict[str, set[str]] = {name: {name} for name in program.inputs}
    found: dict[str, int] = {}
    for op in program.ops:
        heads = set().union(*(leads.get(name, set()) for name in op.reads))
        if op.type in _PASSES:
            leads |= dict.fromkeys(op.outputs, heads)
        rows = _rows(program, op)
        for name in set().union(*(leads.get(one, set()) for one in _named(op, "indices"))) if rows else ():
            found[name] = min(rows or 0, found.get(name, rows or 0))
    return found


def _rows(program: graph.Program, op: graph.Op) -> int | None:
    table = _named(op, "x")
    if op.type not in _LOOKUPS or not table or table[0] not in program.types:
        return None
    kind = program.tensor_type(table[0])
    return kind.shape[0] if kind is not None and kind.shape and isinstance(kind.shape[0], int) else None


def _named(op: graph.Op, parameter: str) -> list[str]:
    return [name for name in op.inputs.get(parameter, []) if isinstance(name, str)]


VARIANTS = {"original": given}

"""A finished ML Program (model=package) with the interface of a module: graph inputs in order, a tuple of outputs.

The reference runtime computes it in fp32, as the baseline for its compressed forms.

arch   inputs (bridge/shapes.py), where the user overrides the package's description; function, if it is not the default one;
       samples and expected: digests of files
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
from ane_sweep.reference.pipeline import Suppression
from ane_sweep.worker.feeds.arrays import pad_rows, to_array
from ane_sweep.worker.models import module
from ane_sweep.worker.models._ports import Port, Ports

# Ops that pass indices on, on their way from an input to the table in which they are looked up.
_PASSES = {"cast", "identity", "reshape", "expand_dims", "squeeze", "greater_equal", "add", "select", "transpose"}
_LOOKUPS = {"gather": "axis", "gather_nd": "", "gather_along_axis": "axis"}
_FAR = 16
_FLAGS, _LEVELS = 2, 256  # whole numbers without a known range are 0 or 1; an image's are below 256


class GivenProgram:
    """A program with the interface of models/module.py's OwnModule."""

    example: tuple[torch.Tensor, ...]

    def __init__(self, path: Path, overrides: dict[str, object] | None, function: str = ""):
        self.model, self.path = reference.load(path, function, numerics="fp32"), path.name
        requested = {one.name: one for one in shapes.read(overrides)} if overrides else {}
        if unknown := [name for name in requested if name not in self.model.inputs]:
            raise StageError(f"model.inputs.{unknown[0]}: the package takes {', '.join(self.model.inputs)}")
        last = getattr(self.model, "models", [self.model])[-1]
        # boxes from which a pipeline's non-maximum suppression chooses; its outputs have one row for each chosen box
        self.rows = last.rows if isinstance(last, Suppression) else 0
        bounds = _find_table_sizes(getattr(self.model, "models", [self.model])[0].program)
        needed = {
            name: feature
            for name, feature in self.model.inputs.items()
            if feature.kind in ("array", "image") or not feature.is_optional
        }
        described = {name: _describe_input(path, feature, bounds.get(name)) for name, feature in needed.items()}
        self.taken = tuple(requested.get(name, one) for name, one in described.items())
        self._leave_out_shapes()

    def call(self, *values: torch.Tensor) -> dict[str, np.ndarray]:
        """Run the program and return its arrays by name."""
        named = {one.name: value.numpy() for one, value in zip(self.taken, values, strict=True)}
        made = self.model.predict(named, self.model.new_state() if self.model.states else None)
        arrays = {name: array for name, value in made.items() if (array := to_array(value)) is not None}
        return {name: pad_rows(array, self.rows) for name, array in arrays.items()} if self.rows else arrays

    def __call__(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(np.array(value)) for value in self.call(*values).values())

    compute_reference = __call__

    def _leave_out_shapes(self) -> None:
        """Run the program at each of its shapes and drop those that fail, as a declared range may be too wide."""
        runnable: list[tuple[tuple[int, ...], ...]] = []
        for point in shapes.points(self.taken):
            example = tuple(map(torch.from_numpy, module.draw_inputs(self.taken, point, seed=0)))
            try:
                made = self.call(*example)
            except (PackageError, RuntimeError, ValueError, IndexError) as error:
                if not runnable:
                    ids = ", ".join(one.name for one in self.taken if one.dtype != "float32")
                    way = f"; if {ids} are looked up, say in which range: model.inputs={{NAME: {{shape: ..., dtype: int32, range: [0,N]}}}}"
                    raise StageError(
                        f"{self.path}: its program does not run on its first inputs: {error}{way if ids else ''}"
                    ) from error
                continue
            if not runnable:
                self._set_ports(example, point, made)
            runnable.append(point)
        columns = zip(*runnable) if runnable else ()
        self.taken = tuple(
            shapes.Input(one.name, one.dtype, one.values, tuple(column) if one.flexible else one.shapes)
            for one, column in zip(self.taken, columns, strict=True)
        )

    def _set_ports(
        self, example: tuple[torch.Tensor, ...], point: tuple[tuple[int, ...], ...], made: dict[str, np.ndarray]
    ) -> None:
        if not made:
            raise StageError(f"{self.path}: all its outputs are texts, which PSNR cannot compare")
        self.example = example
        ins = [
            Port(one.name, shape, one.dtype, one.shapes if one.flexible else ())
            for one, shape in zip(self.taken, point)
        ]
        self.ports = Ports(tuple(ins), tuple(Port(name, value.shape, str(value.dtype)) for name, value in made.items()))


def build_given(params: dict[str, Any], inputs: dict[str, Path]) -> GivenProgram:
    """Load the package and run it once. Raises StageError, errors.PackageError, errors.UnsupportedOp."""
    arch = params["model"]["arch"]
    return GivenProgram(inputs["package"], arch["inputs"], arch.get("function", ""))


def _describe_input(path: Path, feature: Feature, table: int | None) -> shapes.Input:
    """Return the range and shapes from which an input is drawn. Raises StageError if it is neither array nor image."""
    if feature.kind not in ("array", "image"):
        raise StageError(
            f"{path.name}: its input {feature.name!r} is a {feature.kind}; arrays and images are drawn here"
        )
    points = _choose_shapes(feature)
    if feature.kind == "image":
        return shapes.Input(feature.name, "int32", (0, _LEVELS), points)
    if feature.dtype.kind == "f":
        return shapes.Input(feature.name, "float32", (0, table - 0.5) if table else None, points)
    return shapes.Input(feature.name, "int32", (0, table or _FLAGS), points)


def _choose_shapes(feature: Feature) -> tuple[tuple[int, ...], ...]:
    """Return the default shape and all enumerated ones, or the smallest and the largest of a range.

    No axis is more than _FAR times the default: a batch of up to 4,096 would take an hour.
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


def _find_table_sizes(program: graph.Program) -> dict[str, int]:
    """Return {input of indices: rows of the smallest table in which it is looked up}."""
    leads: dict[str, set[str]] = {name: {name} for name in program.inputs}
    sizes: dict[str, int] = {}
    for op in program.ops:
        heads = set().union(*(leads.get(name, set()) for name in op.reads))
        if op.type in _PASSES:
            leads |= dict.fromkeys(op.outputs, heads)
        rows = _table_size(program, op)
        for name in set().union(*(leads.get(one, set()) for one in op.names("indices"))) if rows else ():
            sizes[name] = min(rows or 0, sizes.get(name, rows or 0))
    return sizes


def _table_size(program: graph.Program, op: graph.Op) -> int | None:
    table = op.names("x")
    if op.type not in _LOOKUPS or not table or table[0] not in program.types:
        return None
    kind = program.tensor_type(table[0])
    return kind.shape[0] if kind is not None and kind.shape and isinstance(kind.shape[0], int) else None


VARIANTS = {"original": build_given}

"""Compile one function of one package into a model that predicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ane_sweep.errors import PackageError
from ane_sweep.mil import chain, element_types, graph
from ane_sweep.mil.element_types import DTYPE_NUMBERS
from ane_sweep.mil.graph import Op
from ane_sweep.mil.package import Package
from ane_sweep.reference import cuda, features, plan
from ane_sweep.reference.control import StateCell
from ane_sweep.reference.features import Feature
from ane_sweep.reference.layout import Watch
from ane_sweep.reference.numerics import Mode


class ModelState:
    """The states of a stateful model between predictions; zeros when new."""

    def __init__(self, features: dict[str, Feature], dtypes: dict[str, torch.dtype], device: str = "cpu"):
        self._features = features
        self.cells = {
            name: StateCell(torch.zeros(feature.shape, dtype=dtypes[name], device=device))
            for name, feature in features.items()
        }

    def _find_feature(self, name: str) -> Feature:
        if name not in self._features:
            known = ", ".join(sorted(self._features)) or "none"
            raise PackageError(f"there is no state {name!r}; the model's states: {known}")
        return self._features[name]

    def read(self, name: str) -> np.ndarray:
        """Return a copy of a state in its declared type. Raises errors.PackageError for an unknown name."""
        feature = self._find_feature(name)
        return self.cells[name].value.cpu().numpy().astype(feature.dtype)

    def write(self, name: str, value: object) -> None:
        """Replace a state; the shape must be the declared one. Raises errors.PackageError."""
        feature, array = self._find_feature(name), np.asarray(value)
        if array.shape != feature.shape or array.dtype.kind not in "biuf":
            raise PackageError(f"state {name!r} takes {feature}, not {array.dtype} {list(array.shape)}")
        with np.errstate(over="ignore"):
            given = torch.from_numpy(np.ascontiguousarray(array.astype(feature.dtype)).reshape(array.shape))
        self.cells[name] = StateCell(given.to(self.cells[name].value, copy=True))


class Model:
    """One compiled function of an ML Program. For `known` see plan.compile_program.

    path, spec, function, functions   the package, its Model message, the function, and the names of all functions
    inputs, outputs, states           {name: features.Feature}
    realised                          the actual settings: {"runtime", "numerics", "threads", "compute_units": None,
                                      ...}
    """

    def __init__(
        self, package: Package, function: str, numerics: Mode, strict: bool, known: dict[str, object] | None = None
    ):
        self.path, self.spec, self.strict = package.path, package.spec, strict
        self.functions = sorted(package.spec.mlProgram.functions)
        self.function = function or graph.default_function(package.spec)
        self.program = graph.view_program(package, function)
        described = chain.function_description(package.spec, self.function)
        self.inputs = {item.name: features.describe(item, self.path) for item in described.input}
        self.outputs = {item.name: features.describe(item, self.path) for item in described.output}
        self.states = {item.name: features.describe(item, self.path) for item in described.state}
        self.plan = plan.compile_program(self.program, numerics, known)
        self.mode = numerics
        self._types = {value.name: element_types.tensor_type(value.type) for value in self.program.function.inputs}
        self._check_description()
        self.is_half = _holds_half(self.program.ops)
        self.realised: dict[str, object] = {
            "runtime": "reference",
            "numerics": numerics.describe(self.is_half),
            "threads": torch.get_num_threads(),
            "compute_units": None,
            **cuda.describe_device(numerics.device),
        }

    @property
    def ops(self) -> list[graph.Op]:
        return self.plan.ops

    def _check_description(self) -> None:
        needed = [name for name in self.program.inputs if name not in self.inputs and name not in self.states]
        made = set(self.program.outputs)
        missing = [name for name in self.outputs if name not in made]
        if needed or missing:
            what = f"its program takes {needed[0]!r}" if needed else f"its program does not make {missing[0]!r}"
            raise PackageError(f"{self.path}: its description and its program differ: {what}; convert the model again")

    def new_state(self) -> ModelState:
        """Return a new state, zeros for every state of the function."""
        dtypes = {name: torch.from_numpy(np.zeros(0, state.dtype)).dtype for name, state in self.states.items()}
        half = self.mode.dtypes["fp16"]
        dtypes = {name: half if kind == torch.float16 else kind for name, kind in dtypes.items()}
        return ModelState(self.states, dtypes, self.mode.device)

    def predict(self, inputs: Mapping[str, object], state: ModelState | None = None) -> dict[str, Any]:
        """Return outputs by name. Raises errors.PackageError for a wrong name, shape or kind of input."""
        return self.to_outputs(self.plan.run(self.prepare_inputs(inputs, state)))

    def tensors(self, inputs: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
        """Run on the torch tensors of several inputs, of the declared types, and return torch tensors by name for each; a chain of
        programs is run this way.
        """
        return self.plan.run_each(inputs)

    def trace(self, inputs: Mapping[str, object], watch: Watch, state: ModelState | None = None) -> dict[str, Any]:
        """Predict, and call `watch(op, {output: array})` after every op."""
        self.plan.session.watch = lambda op, made: watch(op, {name: as_array(value) for name, value in made.items()})
        try:
            return self.to_outputs(self.plan.run(self.prepare_inputs(inputs, state)))
        finally:
            self.plan.session.watch = None

    def prepare_inputs(self, inputs: Mapping[str, object], state: ModelState | None) -> dict[str, object]:
        """Convert inputs and states to the values that the plan takes. Raises errors.PackageError if they do not fit."""
        tensors = features.accept_inputs(inputs, self.inputs, self.path, self.strict, self._types)
        values: dict[str, object] = {name: self.tensor_in(name, value) for name, value in tensors.items()}
        if self.states:
            if state is None:
                names = ", ".join(self.states)
                raise PackageError(f"{self.path}: keeps states ({names}); give one made by new_state()")
            values.update(state.cells)
        return values

    def tensor_in(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Convert a tensor from outside to the program's own type for it, under the mode of numerics."""
        kind = self._types.get(name)
        return value if kind is None else value.to(self.mode.device, self.mode.dtypes.get(kind.dtype, value.dtype))

    def to_outputs(self, made: Mapping[str, object]) -> dict[str, Any]:
        """Convert the results of the plan to the values that `predict` returns."""
        types = self.program.types
        return {
            name: features.to_output(
                made[name], feature, element_types.tensor_type(types[name]) if name in types else None
            )
            for name, feature in self.outputs.items()
        }


def as_array(value: object) -> object:
    """Convert a value for a watcher: tensors to arrays, lists to lists of arrays; other values stay unchanged."""
    if isinstance(value, torch.Tensor):
        return value.cpu().numpy()
    return [as_array(item) for item in value] if isinstance(value, list) else value


def _holds_half(ops: Iterable[Op]) -> bool:
    half = DTYPE_NUMBERS["fp16"]
    return any(
        value.type.tensorType.dataType == half
        for op in plan.iterate_ops(ops)
        if op.type != "const"
        for value in op.proto.outputs
    )

"""Loading whatever is executed here: a model.Model, and with the same methods pipelines of models and linear regressors,
which are cheap, and part of Apple's own examples.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ane_sweep.errors import PackageError
from ane_sweep.mil import package as packages
from ane_sweep.mil.package import Package
from ane_sweep.reference import cuda, features
from ane_sweep.reference.model import Model, State
from ane_sweep.reference.numerics import Mode, mode

_PIPELINES = ("pipeline", "pipelineRegressor", "pipelineClassifier")
KINDS = (*_PIPELINES, "glmRegressor")
_DEEPEST = 8


class _Described:
    """What every kind of model has: its features as described, no states, one function."""

    def __init__(self, package: Package, spec: Any, strict: bool):
        self.path, self.spec, self.strict = package.path, spec, strict
        self.function, self.functions, self.ops, self.states = "main", ["main"], [], {}  # type: ignore[var-annotated]
        described = spec.description
        self.inputs = {item.name: features.describe(item, self.path) for item in described.input}
        self.outputs = {item.name: features.describe(item, self.path) for item in described.output}
        self.realised: dict[str, Any] = {
            "runtime": "reference",
            "numerics": "fp32",
            "threads": torch.get_num_threads(),
            "compute_units": None,
        }

    def new_state(self) -> Any:
        return State({}, {})

    def trace(self, inputs: dict[str, Any], watch: Any, state: Any = None) -> dict[str, Any]:
        raise self._untraced()

    @property
    def plan(self) -> Any:
        raise self._untraced()

    def _untraced(self) -> PackageError:
        return PackageError(
            f"{self.path}: only ML Programs by themselves are traced; trace the pipeline's models one by one"
        )


class LinearRegressor(_Described):
    """offset + weights . inputs: scalars or vectors, joined in the order in which they are described."""

    def __init__(self, package: Package, spec: Any, strict: bool):
        super().__init__(package, spec, strict)
        regressor = spec.glmRegressor
        if regressor.postEvaluationTransform != 0 or len(regressor.weights) != len(regressor.offset):
            raise PackageError(f"{self.path}: a linear regressor with a transform of its result is not executed here")
        self._weights = [np.array(row.value, np.float64) for row in regressor.weights]
        self._offset = np.array(regressor.offset, np.float64)

    def predict(self, inputs: dict[str, Any], state: Any = None) -> dict[str, Any]:
        missing = [name for name in self.inputs if name not in inputs]
        if missing:
            raise PackageError(f"{self.path}: inputs do not fit: {missing[0]!r} is missing")
        joined = np.concatenate([np.asarray(inputs[name], np.float64).reshape(-1) for name in self.inputs])
        if any(row.size != joined.size for row in self._weights):
            raise PackageError(f"{self.path}: its weights are for {self._weights[0].size} values, not {joined.size}")
        found = np.array([row @ joined for row in self._weights]) + self._offset
        (name, feature), *_ = self.outputs.items()
        return {name: float(found[0]) if feature.kind == "double" else found.astype(feature.dtype)}


class Pipeline(_Described):
    """Models in a row; values are handed over by name, as Core ML hands them over (in the types of the features)."""

    def __init__(self, package: Package, spec: Any, numerics: Mode, strict: bool, depth: int = 0):
        super().__init__(package, spec, strict)
        if depth > _DEEPEST:
            raise PackageError(f"{self.path}: pipelines within pipelines, more than {_DEEPEST} deep; is it damaged?")
        kind = spec.WhichOneof("Type")
        inner = spec.pipeline if kind == "pipeline" else getattr(spec, kind).pipeline
        if not len(inner.models):
            raise PackageError(f"{self.path}: a pipeline without models; the file is damaged")
        self.models = [_loaded(package, model, numerics, depth + 1) for model in inner.models]
        said = [model.realised["numerics"] for model in self.models]
        self.realised["numerics"] = next((text for text in said if text != "fp32"), "fp32")
        self.realised |= cuda.says(numerics.device)

    def predict(self, inputs: dict[str, Any], state: Any = None) -> dict[str, Any]:
        unknown = [name for name in inputs if name not in self.inputs]
        if unknown:
            raise PackageError(f"{self.path}: inputs do not fit: {unknown[0]!r} is not an input")
        values = dict(inputs)
        for model in self.models:
            values.update(model.predict({name: values[name] for name in model.inputs if name in values}))
        missing = [name for name in self.outputs if name not in values]
        if missing:
            raise PackageError(f"{self.path}: no model of the pipeline makes the output {missing[0]!r}")
        return {name: values[name] for name in self.outputs}


def _loaded(package: Package, spec: Any, numerics: Mode, depth: int) -> Any:
    kind = spec.WhichOneof("Type")
    inner = Package(package.path, package.model_path, spec)
    if kind == "mlProgram":
        return Model(inner, "", numerics, strict=False)
    if kind == "glmRegressor":
        return LinearRegressor(inner, spec, strict=False)
    if kind in _PIPELINES:
        return Pipeline(inner, spec, numerics, False, depth)
    raise PackageError(f"{package.path}: holds a {kind}, which is not executed here")


def load(
    source: Path | str | Package,
    function: str = "",
    *,
    numerics: str | None = None,
    effects: list[str] | None = None,
    strict: bool = True,
    device: str = "cpu",
) -> Any:
    """A Model, or a Pipeline or a LinearRegressor with the same methods. Raises errors.PackageError, errors.ConfigError,
    errors.Unavailable.
    """
    numerics_mode = mode(numerics, effects, device)
    package = source if isinstance(source, Package) else packages.read(Path(source), kinds=("mlProgram", *KINDS))
    kind = package.spec.WhichOneof("Type")
    if kind == "mlProgram":
        return Model(package, function, numerics_mode, strict)
    if kind == "glmRegressor":
        return LinearRegressor(package, package.spec, strict)
    return Pipeline(package, package.spec, numerics_mode, strict)

"""Load every kind of model that this runtime executes.

Pipelines and simple models have the methods of model.Model. Simple models occur in common pipelines and are cheap:
linear regressors (part of Apple's own examples) and non-maximum suppression (the end of every detector exported as a
pipeline).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from ane_sweep.errors import PackageError
from ane_sweep.mil import package as packages
from ane_sweep.mil.graph import Op
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import Model_pb2
from ane_sweep.reference import cuda, detection, features
from ane_sweep.reference.features import Feature
from ane_sweep.reference.layout import Watch
from ane_sweep.reference.model import Model, ModelState
from ane_sweep.reference.numerics import Mode, make_mode


class SimpleModel:
    """The attributes and methods of a model that is no program: features as described, no states, one function."""

    def __init__(self, package: Package, spec: Model_pb2.Model, strict: bool):
        self.path, self.spec, self.strict = package.path, spec, strict
        self.function, self.functions = "main", ["main"]
        self.ops: list[Op] = []
        self.states: dict[str, Feature] = {}
        described = spec.description
        self.inputs = {item.name: features.describe(item, self.path) for item in described.input}
        self.outputs = {item.name: features.describe(item, self.path) for item in described.output}
        self.realised: dict[str, object] = {
            "runtime": "reference",
            "numerics": "fp32",
            "threads": torch.get_num_threads(),
            "compute_units": None,
        }

    def new_state(self) -> ModelState:
        return ModelState({}, {})

    def predict(self, inputs: Mapping[str, object], state: ModelState | None = None) -> dict[str, Any]:
        """Return outputs by name. Raises errors.PackageError for a wrong name or shape of input."""
        raise NotImplementedError

    def trace(self, inputs: Mapping[str, object], watch: Watch, state: ModelState | None = None) -> dict[str, Any]:
        raise self._no_trace_error()

    @property
    def plan(self) -> NoReturn:
        raise self._no_trace_error()

    def _no_trace_error(self) -> PackageError:
        return PackageError(
            f"{self.path}: only ML Programs by themselves are traced; trace the pipeline's models one by one"
        )


class LinearRegressor(SimpleModel):
    """A linear regressor: offset + weights . inputs; inputs are scalars or vectors, joined in the order of their description."""

    def __init__(self, package: Package, spec: Model_pb2.Model, strict: bool):
        super().__init__(package, spec, strict)
        regressor = spec.glmRegressor
        if regressor.postEvaluationTransform != 0 or len(regressor.weights) != len(regressor.offset):
            raise PackageError(f"{self.path}: a linear regressor with a transform of its result is not executed here")
        self._weights = [np.array(row.value, np.float64) for row in regressor.weights]
        self._offset = np.array(regressor.offset, np.float64)

    def predict(self, inputs: Mapping[str, object], state: ModelState | None = None) -> dict[str, Any]:
        missing = [name for name in self.inputs if name not in inputs]
        if missing:
            raise PackageError(f"{self.path}: inputs do not fit: {missing[0]!r} is missing")
        joined = np.concatenate([np.asarray(inputs[name], np.float64).reshape(-1) for name in self.inputs])
        if any(row.size != joined.size for row in self._weights):
            raise PackageError(f"{self.path}: its weights are for {self._weights[0].size} values, not {joined.size}")
        found = np.array([row @ joined for row in self._weights]) + self._offset
        (name, feature), *_ = self.outputs.items()
        return {name: float(found[0]) if feature.kind == "double" else found.astype(feature.dtype)}


class Suppression(SimpleModel):
    """Non-maximum suppression of boxes (N, 4) as centre x, centre y, width, height with confidences (N, classes).

    The result has the best boxes first, without boxes whose best confidence is below one threshold or that overlap a
    better one by more than another (NonMaximumSuppression.proto). Both thresholds may also be inputs.
    """

    def __init__(self, package: Package, spec: Model_pb2.Model, strict: bool):
        super().__init__(package, spec, strict)
        self._settings = settings = spec.nonMaximumSuppression
        if not settings.confidenceInputFeatureName or not settings.coordinatesInputFeatureName:
            raise PackageError(
                f"{self.path}: its non-maximum suppression does not name its inputs: a compiled model keeps them in "
                "coremldata.bin, which is not read; give the .mlpackage that it was compiled from"
            )

    @property
    def rows(self) -> int:
        """Return the number of input boxes if the description gives it, else 0."""
        shape = self.inputs[self._settings.confidenceInputFeatureName].shape
        return shape[0] if shape else 0

    def predict(self, inputs: Mapping[str, object], state: ModelState | None = None) -> dict[str, Any]:
        settings = self._settings
        confidence = self._array(inputs, settings.confidenceInputFeatureName)
        boxes = self._array(inputs, settings.coordinatesInputFeatureName)
        if confidence.shape[0] != boxes.shape[0] or boxes.shape[1] != 4:
            raise PackageError(
                f"{self.path}: {boxes.shape[0]} boxes of {boxes.shape[1]} numbers and {confidence.shape[0]} confidences "
                "do not fit together"
            )
        limit = _number(inputs.get(settings.iouThresholdInputFeatureName, settings.iouThreshold))
        floor = _number(inputs.get(settings.confidenceThresholdInputFeatureName, settings.confidenceThreshold))
        kept = detection.select_boxes(boxes, confidence, limit, floor, by_class=settings.pickTop.perClass)
        made = {settings.confidenceOutputFeatureName: confidence, settings.coordinatesOutputFeatureName: boxes}
        return {
            name: made[name][kept].numpy().astype(self.outputs[name].dtype) for name in self.outputs if name in made
        }

    def _array(self, inputs: Mapping[str, object], name: str) -> torch.Tensor:
        if name not in inputs:
            raise PackageError(f"{self.path}: inputs do not fit: {name!r} is missing")
        array = np.asarray(inputs[name], np.float32)
        if array.ndim < 2:
            raise PackageError(f"{self.path}: {name!r} has shape {list(array.shape)}, not one row a box")
        return torch.from_numpy(array.reshape(-1, array.shape[-1]).copy())


def _number(value: object) -> float:
    return float(np.asarray(value, np.float64).item())


_PIPELINES = ("pipeline", "pipelineRegressor", "pipelineClassifier")
_SIMPLE: dict[str | None, type[LinearRegressor] | type[Suppression]] = {
    "glmRegressor": LinearRegressor,
    "nonMaximumSuppression": Suppression,
}
KINDS = (*_PIPELINES, "glmRegressor", "nonMaximumSuppression")
_DEEPEST = 8


class Pipeline(SimpleModel):
    """Models in a row; each gets the values of earlier ones by name, in the types of the features, as in Core ML."""

    marks: list[float] | None = None  # if it is a list, a prediction adds the times of each model's call and return

    def __init__(self, package: Package, spec: Model_pb2.Model, numerics: Mode, strict: bool, depth: int = 0):
        super().__init__(package, spec, strict)
        if depth > _DEEPEST:
            raise PackageError(f"{self.path}: pipelines within pipelines, more than {_DEEPEST} deep; is it damaged?")
        kind = spec.WhichOneof("Type")
        inner = spec.pipeline if kind == "pipeline" else spec.pipelineRegressor.pipeline
        inner = spec.pipelineClassifier.pipeline if kind == "pipelineClassifier" else inner
        if not len(inner.models):
            raise PackageError(f"{self.path}: a pipeline without models; the file is damaged")
        self.models = [_load_part(package, model, numerics, depth + 1) for model in inner.models]
        modes = [model.realised["numerics"] for model in self.models]
        self.realised["numerics"] = next((text for text in modes if text != "fp32"), "fp32")
        self.realised |= cuda.describe_device(numerics.device)

    def predict(self, inputs: Mapping[str, object], state: ModelState | None = None) -> dict[str, Any]:
        unknown = [name for name in inputs if name not in self.inputs]
        if unknown:
            raise PackageError(f"{self.path}: inputs do not fit: {unknown[0]!r} is not an input")
        values, marks = dict(inputs), self.marks
        for model in self.models:
            if marks is not None:
                marks.append(time.perf_counter())
            values.update(model.predict({name: values[name] for name in model.inputs if name in values}))
            if marks is not None:
                marks.append(time.perf_counter())
        missing = [name for name in self.outputs if name not in values]
        if missing:
            raise PackageError(f"{self.path}: no model of the pipeline makes the output {missing[0]!r}")
        return {name: values[name] for name in self.outputs}


def _load_part(package: Package, spec: Model_pb2.Model, numerics: Mode, depth: int) -> Model | SimpleModel:
    kind = spec.WhichOneof("Type")
    inner = Package(package.path, package.model_path, spec)
    if kind == "mlProgram":
        return Model(inner, "", numerics, strict=False)
    if kind in _SIMPLE:
        return _SIMPLE[kind](inner, spec, strict=False)
    if kind in _PIPELINES:
        return Pipeline(inner, spec, numerics, False, depth)
    raise PackageError(f"{package.path}: holds a {kind}, which is not executed here")


def load(
    source: Path | str | Package,
    function: str = "",
    *,
    numerics: str | None = None,
    effects: Iterable[str] | None = None,
    strict: bool = True,
    device: str = "cpu",
) -> Any:
    """Read, check and compile one function of a package.

    source    a .mlpackage, .mlmodel or .mlmodelc, or a mil.package.Package
    function  a function of a multifunction package; "" is the default one
    numerics  "fp16", "fp32" or "ane" (numerics.py); None: as the program declares
    effects   names of mil.effects.EFFECTS for numerics="ane"; None: the default ones
    strict    False casts inputs as Core ML does (fractions cut off for integers)
    device    "cpu" or "cuda"; inputs and outputs are numpy arrays in either case

    Raises errors.PackageError, errors.ConfigError, errors.Unavailable.
    """
    numerics_mode = make_mode(numerics, effects, device)
    package = source if isinstance(source, Package) else packages.read(Path(source), kinds=("mlProgram", *KINDS))
    kind = package.spec.WhichOneof("Type")
    if kind == "mlProgram":
        return Model(package, function, numerics_mode, strict)
    if kind in _SIMPLE:
        return _SIMPLE[kind](package, package.spec, strict)
    return Pipeline(package, package.spec, numerics_mode, strict)

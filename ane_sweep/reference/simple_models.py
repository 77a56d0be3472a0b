"""Models that are no ML Programs, executed because they are cheap and stand in pipelines that people have: linear
regressors (part of Apple's own examples) and non-maximum suppression (the end of every detector exported as a pipeline).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ane_sweep.errors import PackageError
from ane_sweep.mil.package import Package
from ane_sweep.reference import detection, features
from ane_sweep.reference.model import ModelState


class SimpleModel:
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
        return ModelState({}, {})

    def trace(self, inputs: dict[str, Any], watch: Any, state: Any = None) -> dict[str, Any]:
        raise self._untraced()

    @property
    def plan(self) -> Any:
        raise self._untraced()

    def _untraced(self) -> PackageError:
        return PackageError(
            f"{self.path}: only ML Programs by themselves are traced; trace the pipeline's models one by one"
        )


class LinearRegressor(SimpleModel):
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


class Suppression(SimpleModel):
    """Boxes (N, 4) as centre x, centre y, width, height with confidences (N, classes), best first, without those whose best
    confidence is below one threshold or that overlap a better one by more than another (NonMaximumSuppression.proto). Both
    thresholds may also come as inputs.
    """

    def __init__(self, package: Package, spec: Any, strict: bool):
        super().__init__(package, spec, strict)
        self._said = said = spec.nonMaximumSuppression
        if not said.confidenceInputFeatureName or not said.coordinatesInputFeatureName:
            raise PackageError(
                f"{self.path}: its non-maximum suppression does not say what it reads: a compiled model keeps that where it "
                "is not read here; give the .mlpackage that it was compiled from"
            )

    @property
    def rows(self) -> int:
        """How many boxes it chooses from, where that is described; 0 where it is not."""
        shape = self.inputs[self._said.confidenceInputFeatureName].shape
        return shape[0] if shape else 0

    def predict(self, inputs: dict[str, Any], state: Any = None) -> dict[str, Any]:
        said = self._said
        confidence = self._array(inputs, said.confidenceInputFeatureName)
        boxes = self._array(inputs, said.coordinatesInputFeatureName)
        if confidence.shape[0] != boxes.shape[0] or boxes.shape[1] != 4:
            raise PackageError(
                f"{self.path}: {boxes.shape[0]} boxes of {boxes.shape[1]} numbers and {confidence.shape[0]} confidences "
                "do not fit together"
            )
        limit = float(inputs.get(said.iouThresholdInputFeatureName, said.iouThreshold))
        floor = float(inputs.get(said.confidenceThresholdInputFeatureName, said.confidenceThreshold))
        kept = detection.select_boxes(boxes, confidence, limit, floor, by_class=said.pickTop.perClass)
        made = {said.confidenceOutputFeatureName: confidence, said.coordinatesOutputFeatureName: boxes}
        return {
            name: made[name][kept].numpy().astype(self.outputs[name].dtype) for name in self.outputs if name in made
        }

    def _array(self, inputs: dict[str, Any], name: str) -> torch.Tensor:
        if name not in inputs:
            raise PackageError(f"{self.path}: inputs do not fit: {name!r} is missing")
        array = np.asarray(inputs[name], np.float32)
        if array.ndim < 2:
            raise PackageError(f"{self.path}: {name!r} has shape {list(array.shape)}, not one row a box")
        return torch.from_numpy(array.reshape(-1, array.shape[-1]).copy())

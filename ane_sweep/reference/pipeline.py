"""Load every kind of model that is executed here; pipelines and simple models have the methods of model.Model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ane_sweep.errors import PackageError
from ane_sweep.mil import package as packages
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import Model_pb2
from ane_sweep.reference import cuda
from ane_sweep.reference.model import Model, ModelState
from ane_sweep.reference.numerics import Mode, make_mode
from ane_sweep.reference.simple_models import LinearRegressor, SimpleModel, Suppression

_PIPELINES = ("pipeline", "pipelineRegressor", "pipelineClassifier")
_SIMPLE: dict[str | None, type[LinearRegressor] | type[Suppression]] = {
    "glmRegressor": LinearRegressor,
    "nonMaximumSuppression": Suppression,
}
KINDS = (*_PIPELINES, "glmRegressor", "nonMaximumSuppression")
_DEEPEST = 8


class Pipeline(SimpleModel):
    """Models in a row; values are handed over by name, as Core ML hands them over (in the types of the features)."""

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

    def predict(self, inputs: Mapping[str, Any], state: ModelState | None = None) -> dict[str, Any]:
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
    device    "cpu" or "cuda"; values come and go as numpy arrays all the same

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

"""Loading whatever is executed here: a model.Model, and with the same methods pipelines and the plain models (plain.py)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ane_sweep.errors import PackageError
from ane_sweep.mil import package as packages
from ane_sweep.mil.package import Package
from ane_sweep.reference import cuda
from ane_sweep.reference.model import Model
from ane_sweep.reference.numerics import Mode, make_mode
from ane_sweep.reference.simple_models import LinearRegressor, SimpleModel, Suppression

_PIPELINES = ("pipeline", "pipelineRegressor", "pipelineClassifier")
_PLAIN = {"glmRegressor": LinearRegressor, "nonMaximumSuppression": Suppression}
KINDS = (*_PIPELINES, *_PLAIN)
_DEEPEST = 8


class Pipeline(SimpleModel):
    """Models in a row; values are handed over by name, as Core ML hands them over (in the types of the features)."""

    marks: list[float] | None = None  # where it is a list, a prediction adds when each model is called and is back

    def __init__(self, package: Package, spec: Any, numerics: Mode, strict: bool, depth: int = 0):
        super().__init__(package, spec, strict)
        if depth > _DEEPEST:
            raise PackageError(f"{self.path}: pipelines within pipelines, more than {_DEEPEST} deep; is it damaged?")
        kind = spec.WhichOneof("Type")
        inner = spec.pipeline if kind == "pipeline" else getattr(spec, kind).pipeline
        if not len(inner.models):
            raise PackageError(f"{self.path}: a pipeline without models; the file is damaged")
        self.models = [_load_part(package, model, numerics, depth + 1) for model in inner.models]
        said = [model.realised["numerics"] for model in self.models]
        self.realised["numerics"] = next((text for text in said if text != "fp32"), "fp32")
        self.realised |= cuda.describe_device(numerics.device)

    def predict(self, inputs: dict[str, Any], state: Any = None) -> dict[str, Any]:
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


def _load_part(package: Package, spec: Any, numerics: Mode, depth: int) -> Any:
    kind = spec.WhichOneof("Type")
    inner = Package(package.path, package.model_path, spec)
    if kind == "mlProgram":
        return Model(inner, "", numerics, strict=False)
    if kind in _PLAIN:
        return _PLAIN[kind](inner, spec, strict=False)
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
    numerics_mode = make_mode(numerics, effects, device)
    package = source if isinstance(source, Package) else packages.read(Path(source), kinds=("mlProgram", *KINDS))
    kind = package.spec.WhichOneof("Type")
    if kind == "mlProgram":
        return Model(package, function, numerics_mode, strict)
    if kind in _PLAIN:
        return _PLAIN[kind](package, package.spec, strict)
    return Pipeline(package, package.spec, numerics_mode, strict)

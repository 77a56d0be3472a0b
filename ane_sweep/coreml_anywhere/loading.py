"""Loading of models under coremltools' rules: every failure is a RuntimeError with one clear sentence.

`ct.convert` loads the model it made; a RuntimeError there becomes a warning and comes back at predict, anything else
would break the conversion.
"""

import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep import reference
from ane_sweep.coreml_anywhere import compiled, features
from ane_sweep.errors import AneSweepError
from ane_sweep.mil import chain
from ane_sweep.mil.package import Package


@contextmanager
def as_runtime_error(doing: str) -> Iterator[None]:
    """Turn our own errors, and our bugs, into RuntimeError; a lack of memory stays a MemoryError."""
    try:
        yield
    except (RuntimeError, MemoryError):
        raise
    except AneSweepError as error:
        raise RuntimeError(str(error)) from error
    except Exception as error:
        raise RuntimeError(
            f"{doing}: {type(error).__name__}: {error} (a bug of ane-sweep's reference runtime)"
        ) from error


class LoadedModel:
    """One function of a model on the reference runtime. `numerics` as in the package reference; None: as declared."""

    def __init__(self, path: str, function: str, numerics: str | None = None):
        start = time.perf_counter_ns()
        place = Path(path)
        is_compiled = place.suffix == ".mlmodelc"
        source: Package | Path = compiled.read(place) if is_compiled else place
        self.model = reference.load(source, function=function, numerics=numerics, strict=False)
        self.spec = self.model.spec
        if is_compiled:
            self.folder = place
        else:
            self.folder = compiled.create(as_package(place, self.spec))
            weakref.finalize(self, compiled.discard, self.folder)
        self.load_ns = time.perf_counter_ns() - start
        self.predict_ns: int | None = None
        self._flexible = {
            feature.name: feature.type.multiArrayType
            for feature in chain.function_description(self.spec, function).input
            if feature.type.WhichOneof("Type") == "multiArrayType"
            and feature.type.multiArrayType.WhichOneof("ShapeFlexibility")
        }

    def predict(self, batch: list[dict[str, Any]], state: Any = None) -> list[dict[str, Any]]:
        """Return one dictionary of outputs for each of inputs; `predict_ns` is their time without the conversions."""
        accepted = [features.convert_inputs(data, self.model.inputs) for data in batch]
        for data in accepted:
            for name in data.keys() & self._flexible.keys():
                features.check_shape(name, np.shape(data[name]), self._flexible[name])
        start = time.perf_counter_ns()
        try:
            made = [self.model.predict(data, state) for data in accepted]
        except AneSweepError as error:
            raise RuntimeError(
                f"Unable to compute the prediction using ML Program. {error}"
            ) from error  # Core ML's words
        self.predict_ns = time.perf_counter_ns() - start
        return [features.convert_outputs(outputs) for outputs in made]


def as_package(path: Path, spec: Any) -> Package:
    """Return a package for `compiled.create`, with the model file that exists, whatever its manifest names."""
    if path.is_file():
        return Package(path, path, spec)
    files = [file for file in (path / "Data").rglob("*.mlmodel") if file.is_file()]
    return Package(path, files[0] if files else path / "Data" / "model.mlmodel", spec)

"""A model ready to predict, behind coremltools' rules: whatever goes wrong is a RuntimeError with one clear sentence.

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
    """Turn what we raise on purpose, and our bugs, into RuntimeError; what the host lacks (memory) stays."""
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


class Loaded:
    """One function of a model on the reference runtime. `numerics` as in the package reference; None: as declared."""

    def __init__(self, path: str, function: str, numerics: str | None = None):
        start = time.perf_counter_ns()
        given = Path(path)
        is_compiled = given.suffix == ".mlmodelc"
        source: Any = compiled.read(given) if is_compiled else given
        self.model = reference.load(source, function=function, numerics=numerics, strict=False)
        self.spec = self.model.spec
        if is_compiled:
            self.folder = given
        else:
            self.folder = compiled.create(packaged(given, self.spec))
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
        """One dictionary of outputs for each of inputs; the time of all of them is kept, without the conversions."""
        accepted = [features.accept(data, self.model.inputs) for data in batch]
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
        return [features.give(outputs) for outputs in made]


def packaged(path: Path, spec: Any) -> Package:
    """A package that was read, as what `compiled.create` copies, whatever its manifest says."""
    if path.is_file():
        return Package(path, path, spec)
    found = [file for file in (path / "Data").rglob("*.mlmodel") if file.is_file()]
    return Package(path, found[0] if found else path / "Data" / "model.mlmodel", spec)

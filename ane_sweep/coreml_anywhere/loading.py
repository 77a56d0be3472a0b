"""Loading of models under coremltools' rules: every failure is a RuntimeError with one clear sentence.

`ct.convert` loads the model it made; a RuntimeError there becomes a warning and comes back at predict, anything else
would break the conversion.

Inputs and outputs are converted as the native binding does it. Inputs: arrays of float32, float64, int32 and int8 (the binding
knows no other; coremltools makes float32 of float16 before), numbers, text, dictionaries, pictures. Outputs: float16 comes as
float32, rank 0 as shape (1,).
Source: coremlpython/CoreMLPythonArray.mm and CoreMLPythonUtils.mm of coremltools 9.0, as observed.
"""

import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from ane_sweep import reference
from ane_sweep.coreml_anywhere import compiled
from ane_sweep.errors import AneSweepError
from ane_sweep.mil import chain
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import FeatureTypes_pb2, Model_pb2
from ane_sweep.reference.model import ModelState


@contextmanager
def as_runtime_error(doing: str) -> Iterator[None]:
    """Convert our own errors, and bugs, to RuntimeError; a lack of memory stays a MemoryError."""
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

    def predict(
        self, batch: Sequence[Mapping[str, object]], state: ModelState | None = None
    ) -> list[dict[str, object]]:
        """Return one dictionary of outputs per input; `predict_ns` is the time without conversions."""
        accepted = [convert_inputs(data, self.model.inputs) for data in batch]
        for data in accepted:
            for name in data.keys() & self._flexible.keys():
                check_shape(name, np.asarray(data[name]).shape, self._flexible[name])
        start = time.perf_counter_ns()
        try:
            made = [self.model.predict(data, state) for data in accepted]
        except AneSweepError as error:
            # Core ML's words.
            raise RuntimeError(f"Unable to compute the prediction using ML Program. {error}") from error
        self.predict_ns = time.perf_counter_ns() - start
        return [convert_outputs(outputs) for outputs in made]


def as_package(path: Path, spec: Model_pb2.Model) -> Package:
    """Return a package for `compiled.create`, with the model file that exists, whatever its manifest says."""
    if path.is_file():
        return Package(path, path, spec)
    files = [file for file in (path / "Data").rglob("*.mlmodel") if file.is_file()]
    return Package(path, files[0] if files else path / "Data" / "model.mlmodel", spec)


ACCEPTED = ("float32", "float64", "int32", "int8")


def convert_inputs(data: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    """Return inputs for the runtime, without names that the model lacks, as Core ML does. Raises RuntimeError."""
    wanted, accepted = set(names), dict[str, object]()
    for name, value in data.items():
        if name not in wanted or value is None:
            continue
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().numpy()  # coremltools 9.0 does not convert tensors for multifunction models
            if value.dtype == np.float16:
                value = value.astype(np.float32)
        if isinstance(value, np.ndarray) and value.dtype.name not in ACCEPTED:
            raise RuntimeError(
                f"input {name!r} is an array of {value.dtype}; Core ML's binding takes {', '.join(ACCEPTED)}: "
                f"convert it, for instance with .astype(np.{'int32' if value.dtype.kind in 'biu' else 'float32'})"
            )
        accepted[name] = value
    return accepted


def check_shape(name: str, shape: tuple[int, ...], feature: FeatureTypes_pb2.ArrayFeatureType) -> None:
    """Raise RuntimeError, with Core ML's message, for a shape that a flexible input does not allow."""
    kind = feature.WhichOneof("ShapeFlexibility")
    if kind == "enumeratedShapes":
        allowed = {tuple(item.shape) for item in feature.enumeratedShapes.shapes} | {tuple(feature.shape)}
        if shape not in allowed:
            sizes = " x ".join(map(str, shape))
            raise RuntimeError(
                f"input {name!r}: MultiArray Shape ({sizes}) was not in enumerated set of allowed shapes"
            )
    elif kind == "shapeRange" and len(shape) == len(feature.shapeRange.sizeRanges):
        for axis, (size, limits) in enumerate(zip(shape, feature.shapeRange.sizeRanges)):
            low, high = limits.lowerBound, limits.upperBound
            if size < low or (size > high >= 0):
                raise RuntimeError(
                    f"input {name!r}: Size ({size}) of dimension ({axis}) is not in allowed range "
                    f"({low}..{high if high >= 0 else 'infinity'})"
                )


def convert_outputs(values: Mapping[str, object]) -> dict[str, object]:
    """Convert outputs to the types that the native binding returns."""
    made = dict(values)
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            value = value.astype(np.float32) if value.dtype == np.float16 else value
            made[name] = value.reshape(1) if value.ndim == 0 else value
    return made

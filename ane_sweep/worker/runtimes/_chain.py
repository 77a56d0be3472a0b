"""Inputs and outputs of a chain of programs, on this Mac or a connected device."""

from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep.errors import PackageError
from ane_sweep.mil import chain, package
from ane_sweep.mil.proto import FeatureTypes_pb2, Model_pb2

# our words -> members of coremltools.ComputeUnit
COMPUTE_UNITS = {"all": "ALL", "cpu_only": "CPU_ONLY", "cpu_and_gpu": "CPU_AND_GPU", "cpu_and_ne": "CPU_AND_NE"}


_FLOATS = (FeatureTypes_pb2.ArrayFeatureType.FLOAT16, FeatureTypes_pb2.ArrayFeatureType.FLOAT32)
_IMAGE = FeatureTypes_pb2.ImageFeatureType
# colour goes in as RGB, whatever order the program has
_LAYOUTS = {_IMAGE.GRAYSCALE: "L", _IMAGE.GRAYSCALE_FLOAT16: "F"}


class Chain:
    """The inputs and outputs of a chain of programs, or of one pipeline, from their packages.

    takes, stateful  for each program: names of its inputs, and whether it has states
    real, outputs    names of the floating-point inputs, and of the chain's outputs
    pictures         inputs that Core ML takes as images, with their layout in PIL's words
    realised         facts for the record that are known before loading
    """

    def __init__(self, programs: list[Path], units: str, function: str | None):
        specs = [package.read(path, kinds=("mlProgram", "pipeline")).spec for path in programs]
        about = [find_description(spec, function, path) for spec, path in zip(specs, programs)]
        self.takes = [[feature.name for feature in description.input] for description in about]
        self.stateful = [bool(description.state) for description in about]
        given = [feature for description in about for feature in description.input]
        self.real = {one.name for one in given if one.type.multiArrayType.dataType in _FLOATS}
        self.pictures = {
            one.name: _LAYOUTS.get(one.type.imageType.colorSpace, "RGB")
            for one in given
            if one.type.WhichOneof("Type") == "imageType"
        }
        self.outputs = list(chain.find_outputs(specs, programs[0].parent, function or ""))
        self.realised: dict[str, object] = {
            "runtime": "coreml",
            "numerics": "Core ML",
            "threads": None,
            "compute_units": units,
            "chunks": sum(max(1, len(spec.pipeline.models)) for spec in specs),
            "function": function,
        }


def to_bindable(value: np.ndarray) -> np.ndarray:
    """Convert a value to float32 or int32 if coremltools 9.0 cannot pass its type (CoreMLPythonArray.mm)."""
    value = np.ascontiguousarray(value)
    if value.dtype == np.float16:
        return value.astype(np.float32)
    if value.dtype.kind in "biu" and value.dtype not in (np.int32, np.int8):
        return value.astype(np.int32)
    return value


def to_picture(value: np.ndarray, layout: str) -> Any:
    """Return a PIL image of levels from 0 to 255, (1, channels, height, width), in the form that coremltools passes to Core ML."""
    from PIL import Image

    levels = np.asarray(value)[0].transpose(1, 2, 0)
    if layout == "F":
        return Image.fromarray(levels[:, :, 0].astype(np.float32), mode="F")
    levels = np.clip(np.round(levels), 0, 255).astype(np.uint8)
    return Image.fromarray(levels if layout == "RGB" else levels[:, :, 0], mode=layout)


def find_description(
    spec: Model_pb2.Model, function: str | None, path: Path
) -> Model_pb2.ModelDescription | Model_pb2.FunctionDescription:
    """Return the description (inputs, outputs, states) of a model, or of one function of a multifunction package."""
    functions = {item.name: item for item in spec.description.functions}
    if not functions:
        if function is not None:
            raise PackageError(f"{path}: has one function only, not {function!r}")
        return spec.description
    wanted = function or spec.description.defaultFunctionName
    if wanted not in functions:
        raise PackageError(f"{path}: has no function {wanted!r}; it has {', '.join(sorted(functions))}")
    return functions[wanted]

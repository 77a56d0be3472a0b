"""Read a compiled model (.mlmodelc) as a Model message.

    model.mil            the program as text (text.py), with the shapes that its inputs take if they are flexible
    metadata.json        inputs and outputs as a user sees them: which of them are pictures
    model0/, model1/ ..  the models of a pipeline, each compiled, in the order they run
    coremldata.bin       the description in Core ML's own binary form, which is not read here

Apple has not published the layout: this is how compiled models look (compiler versions 3404 to 3520). A model that is
not a program keeps only coremldata.bin, so its position in a pipeline is known, but not its parameters.
"""

import json
from pathlib import Path
from typing import Any

from ane_sweep.errors import PackageError
from ane_sweep.mil import text, untrusted
from ane_sweep.mil.proto import FeatureTypes_pb2, MIL_pb2, Model_pb2
from ane_sweep.mil.weights import program_blob_values

TEXT_NAME = "model.mil"
METADATA_NAME = "metadata.json"
FLEXIBLE = "FlexibleShapeInformation"  # an attribute of the function
NO_DEFAULT = "its default shape is not stated"
_MOST_PARTS = 64
_IMAGE = FeatureTypes_pb2.ImageFeatureType
_COLORS = {
    "RGB": _IMAGE.RGB,
    "BGR": _IMAGE.BGR,
    "Grayscale": _IMAGE.GRAYSCALE,
    "Grayscale16Half": _IMAGE.GRAYSCALE_FLOAT16,
}
SUFFIX = ".mlmodelc"


def is_compiled(path: Path) -> bool:
    return path.suffix == SUFFIX or (path / "coremldata.bin").exists()


def read(folder: Path) -> Model_pb2.Model:
    """Return the Model message of a compiled model: an ML Program, or a pipeline. Raises PackageError."""
    if (folder / TEXT_NAME).is_file():
        spec = text.read(folder / TEXT_NAME)
        _describe_features(spec, _read_metadata(folder))
        return spec
    if (folder / "model0").is_dir():
        return _read_pipeline(folder)
    raise PackageError(f"{folder}: a compiled model without {TEXT_NAME}; give the .mlpackage that it was compiled from")


def _read_pipeline(folder: Path) -> Model_pb2.Model:
    spec = Model_pb2.Model()
    structure = _read_metadata(folder).get("modelType", {}).get("structure", [])
    index = 0
    while (part := folder / f"model{index}").is_dir() and index < _MOST_PARTS:
        model = spec.pipeline.models.add()
        if (part / TEXT_NAME).is_file():
            model.CopyFrom(read(part))
            for value in program_blob_values(model.mlProgram):
                name = value.blobFileValue.fileName
                value.blobFileValue.fileName = f"@model_path/model{index}/" + name.removeprefix("@model_path/")
        else:
            name = str(structure[index].get("name", "")) if index < len(structure) else ""
            kind = name.removeprefix("MLModelType_")
            if kind not in model.DESCRIPTOR.fields_by_name or kind == "description":
                kind = "nonMaximumSuppression" if not kind else "customModel"
            getattr(model, kind).SetInParent()
            model.specificationVersion = 1
            model.description.metadata.shortDescription = f"{part.name} of a compiled pipeline, without its parameters"
        index += 1
    spec.specificationVersion = max(model.specificationVersion for model in spec.pipeline.models)
    programs = [model for model in spec.pipeline.models if model.WhichOneof("Type") == "mlProgram"]
    if programs:  # the programs' own inputs and outputs: the other models are not known
        spec.description.input.extend(programs[0].description.input)
        spec.description.output.extend(programs[-1].description.output)
    return spec


def _read_metadata(folder: Path) -> dict[str, Any]:
    """Return the content of metadata.json, or {} if it is missing or has another form: the program can be read without it."""
    try:
        content = untrusted.read_json(folder / METADATA_NAME)
    except (OSError, ValueError, json.JSONDecodeError):
        return {}
    first = content[0] if isinstance(content, list) and content else content
    return first if isinstance(first, dict) else {}


def _describe_features(spec: Model_pb2.Model, metadata: dict[str, Any]) -> None:
    described = {listed.name: listed for listed in spec.description.functions}
    for name, function in spec.mlProgram.functions.items():
        description = described.get(name) or spec.description
        flexible = _read_flexible_shapes(function)
        for feature in description.input:
            _apply_shape(feature, flexible)
        listed = metadata.get("inputSchema", []), metadata.get("outputSchema", [])
        for features, schema in zip((description.input, description.output), listed):
            entries = [entry for entry in schema if isinstance(entry, dict)]
            pictures = {str(entry.get("name")): entry for entry in entries if entry.get("type") == "Image"}
            for feature in features:
                if feature.name in pictures:
                    _describe_image(feature, pictures[feature.name])


def _read_flexible_shapes(function: MIL_pb2.Function) -> dict[str, dict[str, MIL_pb2.Value]]:
    """Return the flexible shapes of a function's inputs as Value messages.

    {"DefaultShapes": {input: value}, "RangeDims" or "EnumeratedShapes": ...}
    """
    if FLEXIBLE not in function.attributes:
        return {}
    parts = function.attributes[FLEXIBLE].immediateValue.tuple.values
    pairs = [pair for part in parts if len(pair := part.immediateValue.tuple.values) == 2]
    return {_decode_string(name): _decode_dictionary(value) for name, value in pairs}


def _decode_string(value: MIL_pb2.Value) -> str:
    strings = value.immediateValue.tensor.strings.values
    return strings[0] if strings else ""


def _decode_dictionary(value: MIL_pb2.Value) -> dict[str, MIL_pb2.Value]:
    return {_decode_string(pair.key): pair.value for pair in value.immediateValue.dictionary.values}


def _apply_shape(feature: Model_pb2.FeatureDescription, stated: dict[str, dict[str, MIL_pb2.Value]]) -> None:
    """Set the default shape and the flexible shapes of an input from the function's attribute."""
    array, name = feature.type.multiArrayType, feature.name
    if array.WhichOneof("ShapeFlexibility") is None:
        return
    if name not in stated.get("DefaultShapes", {}):
        feature.shortDescription = NO_DEFAULT
        return
    del array.shape[:]
    array.shape.extend(stated["DefaultShapes"][name].immediateValue.tensor.ints.values)
    options = [_decode_dictionary(option) for option in stated.get("EnumeratedShapes", {}).values()]
    if options and all(name in option for option in options):
        for option in options:
            array.enumeratedShapes.shapes.add().shape.extend(option[name].immediateValue.tensor.ints.values)
    elif name in stated.get("RangeDims", {}):
        del array.shapeRange.sizeRanges[:]
        for bounds in stated["RangeDims"][name].immediateValue.list.values:
            low, high = bounds.immediateValue.tensor.ints.values
            array.shapeRange.sizeRanges.add(lowerBound=low, upperBound=high)


def _describe_image(feature: Model_pb2.FeatureDescription, entry: dict[str, Any]) -> None:
    """Describe an array input as an image, which the user gives: the program computes on (1, channels, height, width)."""
    color = _COLORS.get(str(entry.get("colorspace", "RGB")))
    try:
        height, width = int(entry["height"]), int(entry["width"])
    except (KeyError, ValueError, TypeError):
        return
    if color is None or height < 1 or width < 1:
        return
    image = feature.type.imageType
    image.height, image.width, image.colorSpace = height, width, color

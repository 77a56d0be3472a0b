"""A compiled model (.mlmodelc) as a Model message.

    model.mil            the program as text (text.py), with the shapes that its inputs take where they are flexible
    metadata.json        what inputs and outputs are to a user: which of them are pictures
    model0/, model1/ ..  the models of a pipeline, each compiled, in the order they run
    coremldata.bin       the description in Core ML's own binary form, which is not read here

Apple has not published the layout: this is what compiled models show (compiler versions 3404 to 3520). What is not a
program keeps nothing but coremldata.bin, so its place in a pipeline is known and its parameters are not.
"""

import json
from pathlib import Path
from typing import Any

from ane_sweep.errors import PackageError
from ane_sweep.mil import text, untrusted
from ane_sweep.mil.proto import FeatureTypes_pb2, Model_pb2
from ane_sweep.mil.weights import blob_values

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


def read(folder: Path) -> Any:
    """The Model message of a compiled model: an ML Program, or a pipeline. Raises PackageError."""
    if (folder / TEXT_NAME).is_file():
        spec = text.read(folder / TEXT_NAME)
        _describe_features(spec, _read_metadata(folder))
        return spec
    if (folder / "model0").is_dir():
        return _read_pipeline(folder)
    raise PackageError(f"{folder}: a compiled model without {TEXT_NAME}; give the .mlpackage that it was compiled from")


def _read_pipeline(folder: Path) -> Any:
    spec = Model_pb2.Model()
    known = _read_metadata(folder)
    structure = known.get("modelType", {}).get("structure", [])
    index = 0
    while (part := folder / f"model{index}").is_dir() and index < _MOST_PARTS:
        model = spec.pipeline.models.add()
        if (part / TEXT_NAME).is_file():
            model.CopyFrom(read(part))
            _move_weights(model, f"@model_path/model{index}/")
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
    if programs:  # what goes in and comes out of the programs: of the others nothing is known
        spec.description.input.extend(programs[0].description.input)
        spec.description.output.extend(programs[-1].description.output)
    return spec


def _move_weights(model: Any, prefix: str) -> None:
    for function in model.mlProgram.functions.values():
        for block in function.block_specializations.values():
            for proto in block.operations:
                for value in blob_values(proto):
                    name = value.blobFileValue.fileName
                    value.blobFileValue.fileName = prefix + name.removeprefix("@model_path/")


def _read_metadata(folder: Path) -> dict[str, Any]:
    """metadata.json, or nothing where it is missing or of another form: it only adds to what the program says."""
    try:
        found = untrusted.read_json(folder / METADATA_NAME)
    except (OSError, ValueError, json.JSONDecodeError):
        return {}
    first = found[0] if isinstance(found, list) and found else found
    return first if isinstance(first, dict) else {}


def _describe_features(spec: Any, metadata: dict[str, Any]) -> None:
    for name, function in spec.mlProgram.functions.items():
        described = next((one for one in spec.description.functions if one.name == name), spec.description)
        flexible = _read_flexible_shapes(function)
        for feature in described.input:
            _apply_shape(feature, flexible)
        listed = metadata.get("inputSchema", []), metadata.get("outputSchema", [])
        for features, schema in zip((described.input, described.output), listed):
            pictures = {
                str(one.get("name")): one for one in schema if isinstance(one, dict) and one.get("type") == "Image"
            }
            for feature in features:
                if feature.name in pictures:
                    _describe_image(feature, pictures[feature.name])


def _read_flexible_shapes(function: Any) -> dict[str, dict[str, Any]]:
    """{"DefaultShapes": {input: value}, "RangeDims" or "EnumeratedShapes": ...} as Value messages."""
    if FLEXIBLE not in function.attributes:
        return {}
    parts = function.attributes[FLEXIBLE].immediateValue.tuple.values
    found = {}
    for part in parts:
        pair = part.immediateValue.tuple.values
        if len(pair) == 2:
            found[_decode_string(pair[0])] = _decode_dictionary(pair[1])
    return found


def _decode_string(value: Any) -> str:
    strings = value.immediateValue.tensor.strings.values
    return strings[0] if strings else ""


def _decode_dictionary(value: Any) -> dict[str, Any]:
    return {_decode_string(pair.key): pair.value for pair in value.immediateValue.dictionary.values}


def _decode_numbers(value: Any) -> list[int]:
    return list(value.immediateValue.tensor.ints.values)


def _apply_shape(feature: Any, stated: dict[str, dict[str, Any]]) -> None:
    """Default shape and flexibility of an input, as the function's attribute says them."""
    array, name = feature.type.multiArrayType, feature.name
    if array.WhichOneof("ShapeFlexibility") is None:
        return
    if name not in stated.get("DefaultShapes", {}):
        feature.shortDescription = NO_DEFAULT
        return
    del array.shape[:]
    array.shape.extend(_decode_numbers(stated["DefaultShapes"][name]))
    options = [_decode_dictionary(option) for option in stated.get("EnumeratedShapes", {}).values()]
    if options and all(name in option for option in options):
        for option in options:
            array.enumeratedShapes.shapes.add().shape.extend(_decode_numbers(option[name]))
    elif name in stated.get("RangeDims", {}):
        del array.shapeRange.sizeRanges[:]
        for bounds in stated["RangeDims"][name].immediateValue.list.values:
            low, high = _decode_numbers(bounds)
            array.shapeRange.sizeRanges.add(lowerBound=low, upperBound=high)


def _describe_image(feature: Any, said: dict[str, Any]) -> None:
    """An array that is given as a picture: the program computes on (1, channels, height, width)."""
    color = _COLORS.get(str(said.get("colorspace", "RGB")))
    try:
        height, width = int(said["height"]), int(said["width"])
    except (KeyError, ValueError, TypeError):
        return
    if color is None or height < 1 or width < 1:
        return
    image = feature.type.imageType
    image.height, image.width, image.colorSpace = height, width, color

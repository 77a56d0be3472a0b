"""A package that no system has seen: the same program under a new identity, so that no cache can know it.

Core ML's compiled programs are cached by what they were compiled from and by who loads them (a published study of an M4
and M6 forces a new compilation with a new process name; another one patches cached programs, so the cache looks no
deeper than that). The copy differs in its path, its metadata and one entry of the program's `buildInfo`, which is
carried into the compiled program's text; nothing that is computed differs, and the weights are the same files.
"""

from pathlib import Path
from typing import Any

from ane_sweep.mil import package
from ane_sweep.mil.proto import MIL_pb2

KEY = "ane-sweep-identity"


def write_fresh_copy(source: Path, target: Path, identity: str) -> Path:
    """Write the package `source` to `target` with `identity` in it; weights are hard links where that is possible."""
    found = package.read(source, kinds=("mlProgram", "pipeline"))
    found.spec.description.metadata.userDefined[KEY] = identity
    for program in _programs(found.spec):
        _set_build_info(program, identity)
    return _write_copy(found, target)


def write_with_default(source: Path, target: Path, function: str) -> Path:
    """Write the multifunction package `source` to `target` with another function as its default."""
    found = package.read(source)
    found.spec.description.defaultFunctionName = function
    return _write_copy(found, target)


def _write_copy(found: package.Package, target: Path) -> Path:
    weights = package.create(target).parent
    for file in sorted((found.model_path.parent / "weights").glob("*")):
        package.link_or_copy(file, weights / file.name)
    package.write(target, found.spec)
    return target


def _programs(spec: Any) -> list[Any]:
    if spec.WhichOneof("Type") == "pipeline":
        return [program for model in spec.pipeline.models for program in _programs(model)]
    return (
        [spec.mlProgram] if spec.WhichOneof("Type") == "mlProgram" else []
    )  # asking others for it would make them one


def _set_build_info(program: Any, identity: str) -> None:
    """One more entry in `buildInfo`, a dictionary from text to text, as coremltools 9.0 itself writes it."""
    info = program.attributes["buildInfo"]
    text = MIL_pb2.ValueType()
    text.tensorType.dataType = MIL_pb2.DataType.STRING
    info.type.dictionaryType.keyType.CopyFrom(text)
    info.type.dictionaryType.valueType.CopyFrom(text)
    pair = info.immediateValue.dictionary.values.add()
    for part, words in ((pair.key, KEY), (pair.value, identity)):
        part.type.CopyFrom(text)
        part.immediateValue.tensor.strings.values.append(words)

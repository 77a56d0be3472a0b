"""Copy a package under a new identity, so that no cache of compiled programs contains it.

Core ML's compiled programs are cached by the program that they were compiled from and by the process that loads them (a
published study of an M4 and M6 forces a new compilation with a new process name; another one patches cached programs,
so the cache compares nothing else). The copy differs in its path, its metadata and one entry of the program's
`buildInfo`, which is carried into the compiled program's text; it computes the same, and the weights are the same
files.
"""

from pathlib import Path

from ane_sweep.mil import package
from ane_sweep.mil.element_types import string_value
from ane_sweep.mil.proto import MIL_pb2, Model_pb2

KEY = "ane-sweep-identity"


def write_fresh_copy(source: Path, target: Path, identity: str) -> Path:
    """Write the package `source` to `target` with `identity` in it and return `target`; weights are hard links if possible."""
    found = package.read(source, kinds=("mlProgram", "pipeline"))
    found.spec.description.metadata.userDefined[KEY] = identity
    for program in _list_programs(found.spec):
        # one entry of `buildInfo`, from text to text, as coremltools 9.0 writes it
        info = program.attributes["buildInfo"]
        pair = info.immediateValue.dictionary.values.add()
        pair.key.CopyFrom(string_value(KEY))
        pair.value.CopyFrom(string_value(identity))
        info.type.dictionaryType.keyType.CopyFrom(pair.key.type)
        info.type.dictionaryType.valueType.CopyFrom(pair.key.type)
    return _write_copy(found, target)


def write_with_default(source: Path, target: Path, function: str) -> Path:
    """Write the multifunction package `source` to `target` with `function` as its default, and return `target`."""
    found = package.read(source)
    found.spec.description.defaultFunctionName = function
    return _write_copy(found, target)


def _write_copy(found: package.Package, target: Path) -> Path:
    weights = package.create(target).parent
    for file in sorted((found.model_path.parent / "weights").glob("*")):
        package.link_or_copy(file, weights / file.name)
    package.write(target, found.spec)
    return target


def _list_programs(spec: Model_pb2.Model) -> list[MIL_pb2.Program]:
    kind = spec.WhichOneof("Type")
    if kind == "pipeline":
        return [program for model in spec.pipeline.models for program in _list_programs(model)]
    return [spec.mlProgram] if kind == "mlProgram" else []  # reading mlProgram of another kind would turn it into one

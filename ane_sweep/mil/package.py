"""Read and write a .mlpackage on disk.

    model.mlpackage/Manifest.json                           names the item that contains the model
    model.mlpackage/Data/com.apple.CoreML/model.mlmodel     protobuf: Model
    model.mlpackage/Data/com.apple.CoreML/weights/weight.bin

Every failure here is errors.PackageError, which says what is wrong, where, and what to do next.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError

from ane_sweep.errors import PackageError
from ane_sweep.mil import compiled, untrusted
from ane_sweep.mil.proto import MIL_pb2, Model_pb2
from ane_sweep.mil.weights import BlobFile, BlobKey, BlobWriter, blob_key, refuse_pointer

WEIGHTS_NAME = "@model_path/weights/weight.bin"  # how a program refers to its weight file
MOST_SPEC_BYTES = (1 << 31) - 1  # of one protobuf message
_AUTHOR = "com.apple.CoreML"
_NAMESPACE = uuid.UUID("6f4ed2a5-7a35-5c0c-9a43-0c2e1f1d9a11")  # any fixed value: equal packages get equal manifests


@dataclass
class Package:
    """A package on disk; `spec` is its Model message, and weight files are opened at their first use."""

    path: Path
    model_path: Path
    spec: Model_pb2.Model
    _blobs: dict[str, BlobFile] = field(default_factory=dict)

    def blobs(self, file_name: str) -> BlobFile:
        """Return the weight file that a program refers to as `file_name` ("@model_path/weights/weight.bin")."""
        if file_name not in self._blobs:
            self._blobs[file_name] = BlobFile(self._weights(file_name).resolve())
        return self._blobs[file_name]

    def add_blobs(self, file_name: str, path: Path) -> None:
        """Let `file_name` stand for a weight file outside the package: a new weight, until the package is written."""
        self._blobs[file_name] = BlobFile(path)

    def measure_blobs(self, values: Iterable[MIL_pb2.Value]) -> int:
        """Return the bytes of the weights that values refer to, each weight once."""
        return sum(self.blobs(name).record(offset).size for name, offset in {blob_key(value) for value in values})

    def move_blobs(self, values: Iterable[MIL_pb2.Value], writer: BlobWriter, moved: dict[BlobKey, int]) -> None:
        """Copy the weights that values refer to, each once, in pieces, and make the values refer to the copies.

        moved   the copies that the writer holds so far, which grow
        """
        for value in values:
            key = blob_key(value)
            if key not in moved:
                moved[key] = writer.add(self.blobs(key[0]), key[1])
            value.blobFileValue.fileName, value.blobFileValue.offset = WEIGHTS_NAME, moved[key]

    def has(self, file_name: str) -> bool:
        """Return True if a weight file exists where the program refers to it."""
        return file_name in self._blobs or os.path.isfile(self._weights(file_name))

    def _weights(self, file_name: str) -> Path:
        prefix = "@model_path/"
        target = self.model_path.parent / file_name.removeprefix(prefix)
        if not file_name.startswith(prefix) or not _is_inside(target, self.path):
            raise PackageError(f"{self.path}: its program asks for weights at {file_name!r}, outside the package")
        return target


def program_paths(folder: Path) -> list[Path]:
    """Return the programs of a "program" artifact in the order they run.

    There is one `model.mlpackage` (or `model.mlmodelc`, if the model was compiled already), or `chunk_01.mlpackage` and
    further chunks.
    """
    folder = Path(folder)
    _refuse_asset(folder)
    for single in (folder / "model.mlpackage", folder / f"model{compiled.SUFFIX}"):
        if single.exists():
            return [single]
    chunks = sorted(folder.glob("chunk_*.mlpackage"), key=lambda path: (len(path.name), path.name))
    if not chunks:
        raise PackageError(f"{folder}: neither model.mlpackage nor chunk_01.mlpackage is there; convert it again")
    expected = [chunk_name(index) for index in range(len(chunks))]
    if [path.name for path in chunks] != expected:
        missing = sorted(set(expected) - {path.name for path in chunks})
        raise PackageError(f"{folder}: a chunk is missing ({', '.join(missing)}); delete the folder and chunk again")
    return chunks


def chunk_name(index: int) -> str:
    return f"chunk_{index + 1:02d}.mlpackage"


def read(path: Path, kinds: tuple[str, ...] = ("mlProgram",)) -> Package:
    """Find and parse a package, a bare .mlmodel file, or the text of a compiled model. Weights are not read.

    `kinds`: the kinds of models that the caller accepts, by field name in Model.proto. Raises errors.PackageError.
    """
    path = Path(path)
    if compiled.is_compiled(path):
        return _check_kind(Package(path, path / compiled.TEXT_NAME, compiled.read(path)), kinds)
    model_path = _find_model_file(path)
    size = model_path.stat().st_size
    refuse_pointer(model_path, size)
    if size > MOST_SPEC_BYTES:
        raise PackageError(f"{model_path}: larger than any Core ML model (2 GiB); is it a weight file?")
    try:
        data = model_path.read_bytes()
    except OSError as error:
        raise PackageError(f"{model_path}: cannot be read ({error.strerror})") from error
    spec = Model_pb2.Model()
    try:
        spec.ParseFromString(data)
    except DecodeError as error:
        raise PackageError(
            f"{model_path}: not a Core ML model, or cut short ({len(data)} bytes); convert the model again"
        ) from error
    if spec.WhichOneof("Type") is None or not spec.specificationVersion:
        raise PackageError(f"{model_path}: an empty or truncated Core ML model ({len(data)} bytes); convert it again")
    return _check_kind(Package(path, model_path, spec), kinds)


def _check_kind(package: Package, kinds: tuple[str, ...]) -> Package:
    kind = package.spec.WhichOneof("Type")
    if kind not in kinds:
        raise PackageError(
            f"{package.path}: holds a {kind}, and only ML Programs are read here; convert the model with "
            "convert_to='mlprogram'"
        )
    return package


def _refuse_asset(path: Path) -> None:
    """Raise PackageError for an asset of Core AI, whose program lies in main.mlirb (coreai-core 1.0.0b3)."""
    if path.suffix == ".aimodel" or (path / "main.mlirb").is_file():
        raise PackageError(
            f"{path}: it is Core AI's asset, and only Core ML's packages are read here; toolchain=coreml makes one of the same model"
        )


def _find_model_file(path: Path) -> Path:
    if not path.exists():
        raise PackageError(f"{path}: no such model; is the path right?")
    if path.is_file():
        return path
    _refuse_asset(path)
    manifest = path / "Manifest.json"
    try:
        content = untrusted.read_json(manifest)
        item = content["itemInfoEntries"][content["rootModelIdentifier"]]["path"]
    except FileNotFoundError as error:
        raise PackageError(
            f"{path}: has no Manifest.json, so it is not a .mlpackage; convert the model again"
        ) from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise PackageError(f"{manifest}: does not say which item is the model; convert the model again") from error
    model_path = path / "Data" / str(item)
    if not _is_inside(model_path, path) or not os.path.isfile(model_path):
        raise PackageError(
            f"{manifest}: names the model {str(item)[:200]!r}, which is not in the package; convert the model again"
        )
    return model_path


def _is_inside(path: Path, folder: Path) -> bool:
    """Return True if a path lies in a folder after following links; False for an impossible path."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a loop of links, a NUL in the name
        return False


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Make a hard link from `target` to `source`, or a copy if the disk has no links. Finished packages are never written to."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def create(path: Path) -> Path:
    """Make the folders of a new package and return the path of its weight file."""
    weights = Path(path) / "Data" / _AUTHOR / "weights"
    weights.mkdir(parents=True)
    return weights / "weight.bin"


def write(path: Path, spec: Model_pb2.Model) -> None:
    """Finish a package begun with `create`: write its protobuf and manifest. Equal content gives equal bytes."""
    path = Path(path)
    (path / "Data" / _AUTHOR / "model.mlmodel").write_bytes(spec.SerializeToString(deterministic=True))
    keys = [str(uuid.uuid5(_NAMESPACE, item)).upper() for item in ("model", "weights")]
    items = (("CoreML Model Specification", "model.mlmodel"), ("CoreML Model Weights", "weights"))
    entries = {
        key: {"author": _AUTHOR, "description": description, "name": name, "path": f"{_AUTHOR}/{name}"}
        for key, (description, name) in zip(keys, items)
    }
    manifest = {"fileFormatVersion": "1.0.0", "itemInfoEntries": entries, "rootModelIdentifier": keys[0]}
    (path / "Manifest.json").write_text(json.dumps(manifest, indent=4, sort_keys=True) + "\n")

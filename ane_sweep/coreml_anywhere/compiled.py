"""`.mlmodelc` folders of the drop-in: the model's own files, and its program as text.

    model.mlmodelc/model.mlmodel          the protobuf, unchanged
    model.mlmodelc/weights/...            hard links to the package's weight files (copies on another file system)
    model.mlmodelc/model.mil              the program as text, for people and for coremltools' own tests
    model.mlmodelc/coremldata.bin         a mark that this module made the folder

Core ML cannot load these folders. In folders made by Core ML, model.mil is read as far as mil/text.py understands it.
"""

import shutil
import tempfile
from pathlib import Path

from google.protobuf.message import DecodeError

from ane_sweep.coreml_anywhere import miltext
from ane_sweep.errors import PackageError
from ane_sweep.mil import package as packages
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import Model_pb2

MARK = b"ane-sweep: not compiled by Core ML; the model is in model.mlmodel\n"
MARK_NAME = "coremldata.bin"
MODEL_NAME = "model.mlmodel"


def create(package: Package) -> Path:
    """Link a model into a new folder `*.mlmodelc`, which the caller deletes together with its temporary parent.

    `write_text` writes the text later, as it takes a second for a big program.
    """
    folder = _make_folder(package.path.stem or "model", package.spec.SerializeToString())
    weights = package.model_path.parent / "weights"
    for source in sorted(weights.rglob("*")) if package.path.is_dir() and weights.is_dir() else []:
        if source.is_file():
            target = folder / "weights" / source.relative_to(weights)
            target.parent.mkdir(parents=True, exist_ok=True)
            packages.link_or_copy(source, target)
    return folder


def _make_folder(name: str, spec: bytes) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ane-sweep-")) / f"{name}.mlmodelc"
    folder.mkdir()
    (folder / MARK_NAME).write_bytes(MARK)
    (folder / MODEL_NAME).write_bytes(spec)
    return folder


def from_memory(spec: bytes, blobs: dict[str, bytes]) -> Path:
    """Write a model given as bytes into such a folder; `blobs` maps names of weight files ("weights/weight.bin") to content."""
    folder = _make_folder("model", spec)
    for name, content in blobs.items():
        name = name.removeprefix("@model_path/")
        name = name if "/" in name else f"weights/{name}"
        target = (folder / name).resolve()
        if not target.is_relative_to(folder.resolve()):
            raise PackageError(f"a weight file cannot be named {name!r}: it would lie outside the model")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder


def write_text(folder: Path, spec: Model_pb2.Model) -> None:
    """Write model.mil, unless it exists or the model is not a program."""
    target = folder / "model.mil"
    if spec.WhichOneof("Type") == "mlProgram" and not target.exists():
        target.write_text(miltext.program(spec), encoding="utf-8")


def read(folder: Path) -> Package:
    """Return the model of a folder made here, or the program in a model.mil made by Core ML. Raises PackageError."""
    mark, model = folder / MARK_NAME, folder / MODEL_NAME
    if not folder.is_dir():
        raise PackageError(f"{folder}: no such compiled model; is the path right?")
    if not model.is_file() or not mark.is_file() or mark.read_bytes() != MARK:
        return packages.read(folder)
    spec = Model_pb2.Model()
    try:
        spec.ParseFromString(model.read_bytes())
    except DecodeError as error:
        raise PackageError(f"{model}: not a Core ML model, or cut short; compile it again") from error
    if spec.WhichOneof("Type") is None:
        raise PackageError(f"{model}: an empty or truncated Core ML model; compile it again")
    return Package(folder, model, spec)


def discard(folder: Path) -> None:
    """Delete a folder that `create` or `from_memory` made, with its temporary parent."""
    shutil.rmtree(folder.parent, ignore_errors=True)

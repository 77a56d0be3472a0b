"""Write a chain of programs as one Core ML pipeline package, and read the programs of such a package.

One Model message contains the models, each with its own weight file, "weights/0-weight.bin" and on (as coremltools
9.0's `make_pipeline` names them). Core ML itself has not yet loaded one: only the format's description says that
outputs may come from models before the last.
"""

from pathlib import Path

from ane_sweep.errors import ChunkError, PackageError
from ane_sweep.mil import chain, package
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import Model_pb2
from ane_sweep.mil.weights import program_blob_values

KINDS = ("mlProgram", "pipeline")  # the models that are read here


def merge(paths: list[Path], target: Path) -> None:
    """Write the programs at `paths`, in order, as one pipeline package; weight files are linked, else copied.

    Raises errors.ChunkError for programs with states or with several functions, which a pipeline cannot hold.
    """
    read = [package.read(path) for path in paths]
    specs = [found.spec for found in read]
    for found in read:
        several = len(found.spec.mlProgram.functions) > 1
        if held := "states" if len(found.spec.description.state) else "functions" if several else "":
            raise ChunkError(
                f"pipeline=coreml: {found.path.name} has {held}, which a pipeline cannot hold; pipeline=manual"
            )
    spec = Model_pb2.Model(specificationVersion=max(one.specificationVersion for one in specs))
    spec.description.metadata.CopyFrom(specs[0].description.metadata)
    spec.description.input.extend(chain.find_inputs(specs).values())
    spec.description.output.extend(chain.find_outputs(specs, target).values())
    for field in ("predictedFeatureName", "predictedProbabilitiesName"):
        setattr(spec.description, field, next((v for one in specs if (v := getattr(one.description, field))), ""))
    weights = package.create(target).parent
    for index, found in enumerate(read):
        model = spec.pipeline.models.add()
        model.CopyFrom(found.spec)
        spec.pipeline.names.append(found.path.stem)
        package.link_or_copy(found.model_path.parent / "weights" / "weight.bin", weights / f"{index}-weight.bin")
        for value in program_blob_values(model.mlProgram):
            value.blobFileValue.fileName = f"@model_path/weights/{index}-weight.bin"
    package.write(target, spec)


def read_programs(path: Path) -> list[Package]:
    """Return the ML Programs of a package in the order they run: one, or several for a pipeline. Raises PackageError."""
    return split(package.read(path, kinds=KINDS))[0]


def split(found: Package) -> tuple[list[Package], list[str]]:
    """Return (the ML Programs of a package, the kinds of its other models), each in the order they run.

    The package was read with `kinds=KINDS`. Raises PackageError if there is no program.
    """
    if found.spec.WhichOneof("Type") == "mlProgram":
        return [found], []
    models = [(str(model.WhichOneof("Type") or "nothing"), model) for model in found.spec.pipeline.models]
    programs = [Package(found.path, found.model_path, model) for kind, model in models if kind == "mlProgram"]
    others = [kind for kind, _ in models if kind != "mlProgram"]
    if not programs:
        raise PackageError(f"{found.path}: a pipeline of {', '.join(others) or 'no models'}: no ML Program is in it")
    return programs, others


def find_program(found: Package) -> tuple[Package, list[str]]:
    """Return (the only ML Program of a package, the kinds of its other models), as `split`. Raises PackageError for several, too."""
    programs, others = split(found)
    if len(programs) > 1:
        raise PackageError(f"{found.path}: a pipeline of {len(programs)} ML Programs: give each as its own package")
    return programs[0], others


def find_weight_file(found: Package) -> Path | None:
    """Return the weight file of a program, or None if the program contains all constants itself or the file is missing."""
    value = next(program_blob_values(found.spec.mlProgram), None)
    if value is None or not found.has(value.blobFileValue.fileName):
        return None
    return found.blobs(value.blobFileValue.fileName).path

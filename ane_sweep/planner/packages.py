"""model=package: a user's own ML Program, resolved from its description without converting or running it."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

from ane_sweep.bridge.axes import TARGETS
from ane_sweep.bridge.cell import Cell, digest
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.plan import Source
from ane_sweep.bridge.rewrites import NO_REWRITE
from ane_sweep.bridge.runtimes import RUNTIMES
from ane_sweep.errors import ConfigError, PackageError
from ane_sweep.machine import apple
from ane_sweep.mil import compiled, graph, package, pipeline
from ane_sweep.mil.element_types import DTYPE_NUMBERS
from ane_sweep.mil.proto import Model_pb2
from ane_sweep.planner.checkpoint_files import file_digest, find_file, find_model

KIND = "package"  # of a Source: what is there is a program already
PACKAGE, SAMPLES, EXPECTED = "package", "samples", "expected"  # the roles that a worker finds them under
COMPILED, PIPELINE = "compiled", "pipeline"
_FIRST_OPSET = 6  # the specification version of iOS15; each target since has one more


def resolve(composed: Mapping[str, object], weights: str, seed: int, digests: Path) -> Source:
    """Return the source of a package. Raises ConfigError for a missing package, one without ML Program, or missing samples."""
    option, path, what = find_model(composed, weights, "FILE.mlpackage", "package")
    text = option.path
    spec, made_from = described(path, what, option.function or "")
    beside = {PACKAGE: path}  # the manifest's identifiers change whenever it is saved
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "Manifest.json")
    content = digest([[str(file.relative_to(path)), file_digest(file, digests)] for file in files])
    for role, key in ((SAMPLES, "samples"), (EXPECTED, "reference")):
        if file := getattr(option, key):
            beside[role] = find_file(f"model.{key}={file}", file)
            if not zipfile.is_zipfile(beside[role]):
                raise ConfigError(f"model.{key}={file}: {beside[role]} is no .npz file")
            made_from[role] = file_digest(beside[role], digests)
    if option.samples and option.reference:
        raise ConfigError("model.samples and model.reference: a reference holds its inputs, too; give one of them")
    numbers = sum(file.stat().st_size for file in files) // 2  # of two bytes each: exact enough for memory
    functions, chosen = sorted(spec.mlProgram.functions), option.function or graph.default_function(spec)
    notes = [f"{text}: function {chosen} of {', '.join(functions)} is scored and timed"] if len(functions) > 1 else []
    if made_from["compute"] == "fp32":
        notes.append(f"{text} computes in fp32: precision=fp16 leaves it as it is")
    return Source(
        kind=KIND, source=str(text), digest=content, arch={**made_from, "inputs": option.inputs, "packages": {}},
        layers=1, max_seq_len=2**20, cut_points=999, parameter_bytes=max(1, numbers) * 4, beside=beside, notes=notes,
    )  # fmt: skip


def described(path: Path, what: str, function: str = "") -> tuple[Model_pb2.Model, dict[str, object]]:
    """Return (the package's protobuf message, the facts that a plan needs). Raises ConfigError with a remedy.

    function    "" is the default one
    """
    if compiled.is_compiled(path) and (reason := apple.no_coreml()):
        raise ConfigError(
            f"{what}: a compiled model is loaded by Core ML alone, which {reason}; give the .mlpackage that it was compiled "
            "from (`ane-sweep lint` and `ane-sweep run` take compiled ones on any host)"
        )
    try:
        found = package.read(path, kinds=pipeline.KINDS)
        programs = [graph.view_program(one, function) for one in pipeline.split(found)[0]]
    except PackageError as error:
        raise ConfigError(f"{what}: {_with_way(str(error))}") from None
    form = COMPILED if compiled.is_compiled(path) else PIPELINE if found.spec.WhichOneof("Type") == PIPELINE else None
    if function and form:
        raise ConfigError(
            f"model.function={function}: a {form} model is run as it is; leave it out, or give a package of one program"
        )
    if path.is_file():
        raise ConfigError(f"{what}: an ML Program in a bare .mlmodel has no place for weights; save it as .mlpackage")
    number = found.spec.specificationVersion - _FIRST_OPSET
    ops = [op for program in programs for op in program.block.operations]
    half = any(
        value.type.tensorType.dataType == DTYPE_NUMBERS["fp16"]
        for op in ops
        if op.type != "const"
        for value in op.outputs
    )
    return found.spec, {
        "target": TARGETS[min(max(number, 0), len(TARGETS) - 1)],
        "compute": "fp16" if half else "fp32",
        "functions": 1 if function else max(1, len(found.spec.mlProgram.functions)),
        "compressed": sum(op.type.startswith("constexpr_") for op in ops),
        **({"form": form} if form else {}),  # of a model that must stay unchanged; a package of one program has none
        **({"function": function} if function else {}),
    }


def _with_way(problem: str) -> str:
    if "only ML Programs" not in problem:
        return problem
    return (
        f"{problem.partition(',')[0]}. Nothing makes an ML Program of it: convert it again from its source (PyTorch, "
        "TensorFlow) with coremltools' convert(..., convert_to='mlprogram', minimum_deployment_target=ct.target.iOS15)"
    )


_STAYS = {
    COMPILED: "a compiled model can be neither rewritten, compressed, cut nor compiled again: {as_it_is}, or give the .mlpackage "
    "that it was compiled from",
    PIPELINE: "a pipeline is run as it is: {as_it_is}, or take its program out of it (`ane-sweep chunk {path} 2 -o FOLDER`)",
}


def _as_it_is(cell: Cell, source: Source) -> str | None:
    asked = {
        "variant": (cell.variant, "original", cell.variant != "original"),
        "rewrite": (format_value(cell.rewrite), NO_REWRITE, cell.rewrite != NO_REWRITE),
        "precision": (cell.precision, "fp16", bool(cell.precision_settings.weights)),
        "chunks": (cell.chunks, 1, cell.chunks != 1),
        "copies": (cell.copies, 1, cell.copies != 1),
        "device": (cell.device, "local", cell.device != "local"),
    }
    stays = _STAYS.get(source.arch.get("form") or "")
    for axis, (value, instead, is_asked) in asked.items():
        if stays and is_asked:
            return f"{axis}={value}: {stays.format(as_it_is=f'{axis}={instead}', path=source.source)}"
    return None


def refusal(cell: Cell, source: Source, runtime: str) -> str | None:
    """Return the reason why a cell of a package is impossible, with a remedy, or None."""
    precision, compute = cell.precision_settings, source.arch["compute"]
    if RUNTIMES[runtime].needs != "program":
        return f"runtime={runtime} runs a torch module, and a package has none; use runtime=reference or coreml"
    if precision.fp32_ops or (precision.compute == "fp32" and compute != "fp32"):
        return (
            f"precision={cell.precision} decides at conversion what is computed in fp32, and {source.source} is a program already "
            f"({compute}); use precision=fp16 (as it is), or one that compresses weights"
        )
    if reason := _as_it_is(cell, source):
        return reason
    if source.arch["compressed"] and precision.weights:
        return (
            f"precision={cell.precision}: {source.source} holds {source.arch['compressed']} compressed weights already; use "
            "precision=fp16 (as it is), or give the package before its compression"
        )
    if source.arch["functions"] > 1 and precision.weights:
        return (
            f"precision={cell.precision}: coremltools 9.0 compresses programs of one function, and {source.source} has "
            f"{source.arch['functions']}; model.function=NAME takes one, or use precision=fp16"
        )
    return None

"""adopt: copies a user's package into the cache, byte for byte, or one function of it as a program of its own.

params  package: digest of its content (in the key alone); function: the only one that is kept (absent: all)
inputs  package
leaves  model.mlpackage, or model.mlmodelc if it is compiled already
"""

import shutil
from pathlib import Path

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.fix import output
from ane_sweep.mil import chain, compiled, package, pipeline
from ane_sweep.mil.proto import Model_pb2
from ane_sweep.worker.programs.mlprogram import size as packages
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=35, many="packages taken in", timeout_s=600, base_gib=0.1, per_byte=0.1, leaves="program", artifact=True,
    limited=False, base_s=1.0, per_gb_s=1.0,
    warm=("ane_sweep.mil.chunker", "ane_sweep.placement.predict"), packages=True,
)  # fmt: skip


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Copy the package, because the user's file may change while the sweep runs. Raises StageError, errors.PackageError."""
    source = inputs["package"]
    target = out / ("model" + (compiled.SUFFIX if compiled.is_compiled(source) else ".mlpackage"))
    try:
        if function := params.get("function"):
            whole = package.read(source)
            taken = output.copy_package(whole)
            _keep_function(taken.spec, str(function))
            output.write_package(whole, taken, target)
        else:
            shutil.copytree(source, target)
    except (OSError, shutil.Error) as error:
        raise StageError(f"{source} cannot be copied: {error}") from error
    made = package.read(target, kinds=pipeline.KINDS)
    return StageResult(
        metrics=[Metric("package_bytes", packages.measure_bytes(target), "bytes")],
        realised={
            "specification_version": made.spec.specificationVersion,
            "functions": sorted(made.spec.mlProgram.functions),
        },
        facts={"weight_bytes": sum(file.stat().st_size for file in target.rglob("weights/*.bin"))},
    )


def _keep_function(spec: Model_pb2.Model, name: str) -> None:
    """Make one function the whole program, as a package of one function has it."""
    chosen, described = spec.mlProgram.functions[name], chain.function_description(spec, name)
    interface = {"input": [*described.input], "output": [*described.output], "state": [*described.state]}
    spec.description.predictedFeatureName = described.predictedFeatureName
    spec.description.predictedProbabilitiesName = described.predictedProbabilitiesName
    for field in (*interface, "functions", "defaultFunctionName"):
        spec.description.ClearField(field)
    for field, features in interface.items():
        getattr(spec.description, field).extend(features)
    kept = type(chosen).FromString(chosen.SerializeToString())
    for other in list(spec.mlProgram.functions):
        del spec.mlProgram.functions[other]
    spec.mlProgram.functions["main"].CopyFrom(kept)

"""adopt: copies a user's package into the cache, byte for byte.

params  package: digest of its content (in the key alone)
inputs  package
leaves  model.mlpackage, or model.mlmodelc if it is compiled already
"""

import shutil
from pathlib import Path

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.mil import compiled, package, pipeline
from ane_sweep.worker.programs.mlprogram import size as packages
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=35, many="packages taken in", timeout_s=600, base_gib=0.1, per_byte=0.1, leaves="program", artifact=True,
    limited=False, guess_s=1.0, guess_per_gb=1.0,
    warm=("ane_sweep.mil.chunker", "ane_sweep.placement.predict"), packages=True,
)  # fmt: skip


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Copy the package, because the user's file may change while the sweep runs. Raises StageError, errors.PackageError."""
    source = inputs["package"]
    target = out / ("model" + (compiled.SUFFIX if compiled.is_compiled(source) else ".mlpackage"))
    try:
        shutil.copytree(source, target)
    except (OSError, shutil.Error) as error:
        raise StageError(f"{source} cannot be copied: {error}") from error
    made = package.read(target, kinds=pipeline.KINDS)
    weights = sum(file.stat().st_size for file in target.rglob("weights/*.bin"))
    return StageResult(
        metrics=[Metric("package_bytes", packages.measure_bytes(target), "bytes")],
        realised={
            "specification_version": made.spec.specificationVersion,
            "functions": sorted(made.spec.mlProgram.functions),
        },
        facts={"weight_bytes": weights},
    )

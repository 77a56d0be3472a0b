"""compile: an ML Program to a device's compiled form (.mlmodelc). macOS only.

inputs  program
leaves  one .mlmodelc per program of the chain
"""

import time
from pathlib import Path
from typing import Any

from ane_sweep.errors import Unavailable
from ane_sweep.runtimes import coreml

from . import StageResult, metric


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """Raises Unavailable off macOS: Core ML's compiler exists nowhere else."""
    if reason := coreml.available():
        raise Unavailable(reason)
    from ane_sweep.runtimes._coremltools import lean

    compile_model = lean().models.utils.compile_model
    began = time.perf_counter()
    for package in sorted(inputs["program"].glob("*.mlpackage")):
        compile_model(str(package), destination_path=str(out / f"{package.stem}.mlmodelc"))
    return StageResult(metrics=[metric("compile_s", time.perf_counter() - began, "s")])

"""compile: compiles programs for this machine, ML Programs to the form .mlmodelc. macOS only.

params  compiler ("coremltools": Core ML's own compileModel; "coremlc": Xcode's, through xcrun), host
inputs  program
leaves  one .mlmodelc per program of the chain, of the same name

It does not compile for the Neural Engine: that happens when the result is first loaded (stage load).
"""

import time
from pathlib import Path
from typing import Literal

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import Unavailable
from ane_sweep.machine import apple
from ane_sweep.worker import params, programs
from ane_sweep.worker.programs import ProgramCompiler
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=80, many="compilations", timeout_s=7200, base_gib=0.5, per_byte=1.0, base_s=10, per_gb_s=30,
    leaves="same program", compressed=True, artifact=True, on_coreml=True, parts=("compile",),
)  # fmt: skip


class Params(params.HostParams, frozen=True, kw_only=True):
    """Parameters of this stage; see the module's docstring."""

    compiler: Literal["coremltools", "coremlc"]
    xcode: str | None = None


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Compile all programs. Raises Unavailable off macOS, and StageError with the compiler's messages if it refuses one."""
    if reason := apple.no_coreml():
        raise Unavailable(reason)
    settings, began = Params.read(params), time.perf_counter()
    part: ProgramCompiler = programs.part(settings.program, "compile")
    version = part.compile_programs(inputs["program"], out, settings.compiler)
    seconds = time.perf_counter() - began
    realised: dict[str, object] = {"compiler": settings.compiler, "compiler_version": version}
    return StageResult([Metric("compile_s", seconds, "s", source=settings.compiler)], realised)

"""compile: ML Programs to a device's compiled form (.mlmodelc). macOS only.

params  compiler ("coremltools": Core ML's own compileModel; "coremlc": Xcode's, through xcrun), host
inputs  program
leaves  one .mlmodelc per program of the chain, of the same name

Nothing is compiled for the Neural Engine here: that happens when the result is first loaded (stage load).
"""

import re
import shutil
import time
from pathlib import Path
from typing import Literal

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError, Unavailable
from ane_sweep.machine import apple, tools
from ane_sweep.mil import package
from ane_sweep.worker import params
from ane_sweep.worker.runtimes._coremltools import import_coremltools
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=80, many="compilations", timeout_s=7200, base_gib=0.5, per_byte=1.0, guess_s=10, guess_per_gb=30,
    leaves="same program", compressed=True, artifact=True, on_coreml=True,
)  # fmt: skip

_LINES = 6  # of the compiler's own, in a reason
_XCRUN_S = 3600.0


class Params(params.Params, frozen=True):
    """Parameters of this stage; see the module's docstring."""

    compiler: Literal["coremltools", "coremlc"]


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Compile all programs. Raises Unavailable off macOS, StageError with the compiler's own lines if it refuses one."""
    if reason := apple.no_coreml():
        raise Unavailable(reason)
    compiler = Params.read(params).compiler
    began = time.perf_counter()
    made = [
        compile_one(source, out / f"{source.stem}.mlmodelc", compiler)
        for source in package.program_paths(inputs["program"])
    ]
    seconds = time.perf_counter() - began
    realised = {"compiler": compiler, "compiler_version": read_version(made[0])}
    return StageResult([Metric("compile_s", seconds, "s", source=compiler)], realised)


def compile_one(source: Path, target: Path, compiler: str) -> Path:
    """Compile a package to `target`, which ends in .mlmodelc; copy a compiled program. Raises StageError."""
    if source.suffix == target.suffix:
        shutil.copytree(source, target)
        return target
    {"coremltools": _compile_by_coremltools, "coremlc": _compile_by_xcode}[compiler](source, target)
    if not target.is_dir():
        raise StageError(
            f"{source.name}: {compiler} reported success and left no {target.name}; use the other compiler"
        )
    return target


def read_version(compiled: Path) -> str | None:
    """Return the `coremlc-version` in a compiled program's `buildInfo`, or None if it has none."""
    try:
        text = next(compiled.rglob("model.mil"))  # of a pipeline the first program's
        with open(text, encoding="utf-8", errors="replace") as file:
            match = re.search(r'\{"coremlc-version", "([^"]+)"\}', file.read(4096))
    except (OSError, StopIteration):
        return None
    return match[1] if match else None


def _compile_by_coremltools(source: Path, target: Path) -> None:
    ct = import_coremltools()
    try:
        ct.models.utils.compile_model(str(source), destination_path=str(target))
    except Exception as error:  # the binding raises RuntimeError, coremltools itself plain Exception
        raise StageError(f"{source.name} does not compile: {_shorten(str(error))}") from error


def _compile_by_xcode(source: Path, target: Path) -> None:
    answer = tools.ask("xcrun", "coremlcompiler", "compile", str(source), str(target.parent), timeout_s=_XCRUN_S)
    if answer is None or "unable to find utility" in answer.stderr:
        raise StageError(
            "compiler=coremlc needs Xcode itself, not only its command line tools (xcrun finds no coremlcompiler): "
            "install it, then `sudo xcode-select --switch /Applications/Xcode.app`; or compiler=coremltools"
        )
    if answer.code is None:
        raise StageError(f"{source.name}: coremlcompiler had not ended after {_XCRUN_S:g} s")
    if not answer.ok:
        raise StageError(f"{source.name} does not compile: {_shorten(answer.stderr or answer.stdout)}")


def _shorten(text: str) -> str:
    """Return a compiler's messages on one line: its errors, else all."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if "error" in line.lower()] or lines
    return " | ".join(lines[:_LINES]) or "it gave no reason"

"""Compilation of ML Programs to .mlmodelc by Core ML or Xcode. It does not compile for the Neural Engine."""

import re
import shutil
from pathlib import Path

from ane_sweep.errors import StageError
from ane_sweep.machine import tools
from ane_sweep.mil import package
from ane_sweep.worker.runtimes._coremltools import import_coremltools

_LINES = 6  # of the compiler's own, in a reason
_XCRUN_S = 3600.0


def compile_programs(program: Path, out: Path, compiler: str) -> str | None:
    """Compile all programs of a chain and return the compiler's version. Raises StageError with the compiler's messages."""
    made = [compile_one(path, out / f"{path.stem}.mlmodelc", compiler) for path in package.program_paths(program)]
    return read_version(made[0])


def compile_one(source: Path, target: Path, compiler: str) -> Path:
    """Compile a package to `target`, which ends in .mlmodelc; an already compiled program is copied. Raises StageError."""
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
    """Return a compiler's messages on one line: its errors if there are any, else everything."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if "error" in line.lower()] or lines
    return " | ".join(lines[:_LINES]) or "it gave no reason"

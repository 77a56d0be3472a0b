"""The declarations of program kinds: the literal PROGRAM of each folder worker/programs/KIND, in its `__init__.py`.

A kind is the output of one toolchain: Core ML's ML Program is the first. The modules of its folder are its parts, which
stages call (worker/programs/__init__.py); plans of a kind leave out stages that need a part it lacks.
"""

from dataclasses import dataclass
from typing import Literal

from ane_sweep.bridge import declared
from ane_sweep.bridge.stages import ALL

PACKAGE = "ane_sweep.worker.programs"
DEFAULT = "mlprogram"  # it enters no task's params


@dataclass(frozen=True)
class ProgramKind:
    """One kind of program, as planner and stages see it.

    title   its name in messages
    suffix  the suffix of its files: a stage writes `model<suffix>`
    toolchain  the value of the axis `toolchain` that asks for it
    packages  its programs are packages that mil/ reads, so that they can be cut, predicted and taken from a user
    distributions  further packages that make and run it; their versions are part of the keys
    lacks     axes that its converter knows nothing of
    codes     the backend of coreai-opt whose compressed torch modules its converter takes; "" for none
    """

    title: str
    suffix: str
    toolchain: str = "coreml"
    packages: bool = False
    distributions: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    codes: Literal["", "CoreML", "CoreAI"] = ""


PROGRAMS = {
    path.parent.name: declared.read(path, "PROGRAM", ProgramKind)
    for path in sorted(declared.folder(PACKAGE).glob("[a-z]*/__init__.py"))
}


def offers(kind: str, stage: str) -> bool:
    """Return True if a program kind has all parts that a stage calls."""
    if ALL[stage].packages and not PROGRAMS[kind].packages:
        return False
    return all((declared.folder(PACKAGE) / kind / f"{part}.py").is_file() for part in ALL[stage].parts)


def refuse(kind: str, stage: str, request: str) -> str | None:
    """Return why a request cannot be met if the program kind lacks a stage, or None if it has the stage."""
    if offers(kind, stage):
        return None
    return f"{request}: {PROGRAMS[kind].title} has no stage {stage}; toolchain={PROGRAMS[DEFAULT].toolchain} has it"

"""The declarations of program kinds: the literal PROGRAM of each folder worker/programs/KIND, in its `__init__.py`.

A kind is what one toolchain makes of a model: Core ML's ML Program is the first. Its folder's modules are its parts, which
stages call (worker/programs/__init__.py); a stage that needs a part which a kind lacks is no part of that kind's plans.
"""

from dataclasses import dataclass

from ane_sweep.bridge import declared
from ane_sweep.bridge.stages import ALL

PACKAGE = "ane_sweep.worker.programs"
DEFAULT = "mlprogram"  # it enters no task's params


@dataclass(frozen=True)
class ProgramKind:
    """One kind of program, as planner and stages see it.

    title   what people call it, in messages
    suffix  the end of its files' names: a stage leaves `model<suffix>`
    packages  its programs are packages that mil/ reads, so that they can be cut, predicted and taken from a user
    """

    title: str
    suffix: str
    packages: bool = False


PROGRAMS = {
    path.parent.name: declared.read(path, "PROGRAM", ProgramKind)
    for path in sorted(declared.folder(PACKAGE).glob("[a-z]*/__init__.py"))
}


def offers(kind: str, stage: str) -> bool:
    """Return True if programs of a kind can go through a stage: its folder holds all parts that the stage calls."""
    if ALL[stage].packages and not PROGRAMS[kind].packages:
        return False
    return all((declared.folder(PACKAGE) / kind / f"{part}.py").is_file() for part in ALL[stage].parts)


def refuse(kind: str, stage: str, request: str) -> str | None:
    """Return why a request cannot be met for want of a stage, or None if the kind offers it."""
    return None if offers(kind, stage) else f"{request}: {PROGRAMS[kind].title} has no stage {stage}"

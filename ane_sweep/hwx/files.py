"""Read several files at once: compiled programs, the net.plist files they were made from, and folders of both."""

from dataclasses import dataclass, field
from pathlib import Path

from ane_sweep.errors import PackageError
from ane_sweep.hwx import comparison, netplist, program
from ane_sweep.hwx.netplist import NetPlist
from ane_sweep.hwx.program import CompiledProgram

MAX_FILES = 1000  # of one folder
_NAMES = ("*.hwx", "net.plist")


@dataclass
class ReadFiles:
    """The contents of some paths; `errors` has a sentence for each that could not be read."""

    programs: list[CompiledProgram] = field(default_factory=list)
    plists: list[NetPlist] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Return True if all tasks are decoded and their numbers match those that the containers declare."""
        return all(item.undecoded is None and item.agrees is not False for item in self.programs)

    def to_dict(self) -> dict[str, object]:
        differing = [comparison.compare_programs(self.programs[0], other) for other in self.programs[1:]]
        found: dict[str, object] = {"programs": [item.to_dict() for item in self.programs]}
        found |= {"plists": [item.to_dict() for item in self.plists], "differences": differing}
        return {**found, "errors": self.errors} if self.errors else found


def read(paths: list[Path]) -> ReadFiles:
    """Read compiled programs (.hwx) and the net.plist files they were made from; folders are searched."""
    found = ReadFiles()
    for path in paths:
        try:
            for file in _find_files(path):
                if file.suffix == ".plist":
                    found.plists.append(netplist.read(file))
                else:
                    found.programs.append(program.read(file))
        except PackageError as error:
            found.errors.append(str(error))
    return found


def _find_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    inside = sorted(item for pattern in _NAMES for item in path.rglob(pattern) if item.is_file())
    if not inside:
        raise PackageError(f"{path}: no .hwx and no net.plist in it")
    if len(inside) > MAX_FILES:
        raise PackageError(f"{path}: {len(inside)} files; name a folder with at most {MAX_FILES}")
    return inside

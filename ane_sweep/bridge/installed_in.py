"""A test for files of installed packages, in contrast to the user's own. Standard library only, for planner and worker."""

import sysconfig
from functools import cache
from pathlib import Path

import ane_sweep

_OURS = Path(ane_sweep.__file__).resolve().parent


def installed(path: Path) -> bool:
    """Return True for files of Python's library, of ane_sweep, and of folders that an installer fills (they hold *.dist-info)."""
    path = path.resolve()
    return any(_is_library(folder) for folder in (path, *path.parents)) or _OURS in (path, *path.parents)


@cache
def _is_library(folder: Path) -> bool:
    own = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    if folder in own or folder.name in ("site-packages", "dist-packages"):
        return True
    return folder.parent != folder and next(folder.glob("*.dist-info"), None) is not None

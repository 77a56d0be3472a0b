"""A check of the install: the packages that run a sweep, and files put there by an installer. It imports none of them."""

import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import ane_sweep
from ane_sweep.errors import ConfigError

_OURS = Path(ane_sweep.__file__).resolve().parent
WORKER = ("torch", "transformers", "safetensors", "tokenizers")  # the extra `run` of pyproject.toml


def need_worker(what: str) -> None:
    """Raise ConfigError if the packages that `what` needs are not installed."""
    if missing := [name for name in WORKER if find_spec(name) is None]:
        raise ConfigError(
            f"{what} needs {', '.join(missing)}, which this install leaves out: pip install 'ane-sweep[run]', in a "
            "checkout pip install -e '.[run]' (ane_sweep/docs/installing.md: without CUDA on Linux). plan, lint, report, "
            "compare, history, import, export and log work without"
        )


def is_installed(path: Path) -> bool:
    """Return True for files of Python's library, of ane_sweep, and of folders that an installer fills (with *.dist-info)."""
    path = path.resolve()
    return any(_is_library(folder) for folder in (path, *path.parents)) or _OURS in (path, *path.parents)


@cache
def _is_library(folder: Path) -> bool:
    own = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    if folder in own or folder.name in ("site-packages", "dist-packages"):
        return True
    return folder.parent != folder and next(folder.glob("*.dist-info"), None) is not None

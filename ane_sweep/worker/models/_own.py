"""Code of the user's own, run here: how it is found and loaded, and how whatever it does ends as one sentence about it."""

import hashlib
import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ane_sweep.bridge import installed_in, trouble
from ane_sweep.errors import StageError

_PRINTED_BYTES = 1 << 20  # of what it prints, this much is kept


@contextmanager
def theirs(what: str) -> Iterator[None]:
    """Around every call of it. Raises StageError for whatever it raises, with the line of theirs where it did."""
    pid = os.getpid()
    try:
        yield
    except StageError:
        raise
    except SystemExit as error:
        raise StageError(f"{what} called sys.exit({error.code!r}){_where(error)}") from None
    except BaseException as error:
        raise StageError(f"{what} raised {_said(error)}{_where(error)}{_way(error)}") from error
    finally:
        if os.getpid() != pid:  # it forked, and this is the copy: one task has one result
            os._exit(0)
        _cut_what_was_printed()


def _said(error: BaseException) -> str:
    text = trouble.text_of(error).strip().splitlines()
    said = f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
    cause = error.__cause__ if isinstance(error, ImportError) else None  # transformers says "could not import" alone
    return said if cause is None else f"{said} Because: {_said(cause)}"


def _where(error: BaseException) -> str:
    """` (nets.py line 12, in forward)`: the last line of the user's own on the way."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({Path(error.filename).name} line {error.lineno})"
    frames = [one for one in traceback.extract_tb(error.__traceback__) if is_theirs(one.filename)]
    return f" ({Path(frames[-1].filename).name} line {frames[-1].lineno}, in {frames[-1].name})" if frames else ""


def is_theirs(file: str) -> bool:
    return file.endswith(".py") and not installed_in.installed(Path(file))


def _way(error: BaseException) -> str:
    """What can be done where that is known."""
    text = trouble.text_of(error)
    if "not compiled with CUDA" in text or "Found no NVIDIA driver" in text or ("CUDA" in text and "device" in text):
        return "; it asks for a GPU, and it is built and traced on the CPU: leave .cuda() and device='cuda' out"
    if "no known parent package" in text:
        return "; a file alone has no package: give it as model.path=PACKAGE.MODULE:NAME from the folder that holds the package"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"; {error.name} is neither installed here nor beside it"
    return ""


def _cut_what_was_printed() -> None:
    """Both streams are files of the run's folder."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
            number = stream.fileno()
            if os.fstat(number).st_size > _PRINTED_BYTES:
                os.ftruncate(number, _PRINTED_BYTES)
                os.lseek(number, 0, os.SEEK_END)
        except (OSError, ValueError):
            pass


def load(arch: Mapping[str, Any], code: Path, file: Path | None) -> Callable[..., Any]:
    """What model.path names. Raises StageError."""
    path: str = arch["path"]
    place, _, name = path.rpartition(":")
    _find_modules_in([*([file.parent] if file else []), code])
    _check_file(arch, path, file)
    with theirs(f"model.path={path}: importing it"):
        module = _from_file(file) if file else importlib.import_module(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            has = ", ".join(sorted(one for one in vars(found) if not one.startswith("_"))[:20])
            raise StageError(f"model.path={path}: {place} has no {part!r}; it has: {has or 'nothing'}")
        found = getattr(found, part)
    return found


def _find_modules_in(folders: list[Path]) -> None:
    """After Python's own library, before what is installed. What was compiled earlier is not used, as its source may
    have changed within the second; nothing is written beside it."""
    sys.dont_write_bytecode = True
    sys.pycache_prefix = os.path.join(os.environ.get("TMPDIR", "/tmp"), "pycache")
    library = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    first = next((n for n, path in enumerate(sys.path) if path in library), len(sys.path))
    sys.path[first:first] = [str(folder) for folder in folders if str(folder) not in sys.path]


def _check_file(arch: Mapping[str, Any], path: str, file: Path | None) -> None:
    if file is None:
        return
    try:
        content = file.read_bytes()
    except OSError as error:
        raise StageError(f"model.path={path}: {file} cannot be read any more: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != arch["files"][file.name]:
        raise StageError(_changed(path, file.name))


def _changed(path: str, name: str) -> str:
    return (
        f"model.path={path}: {name} is not what it was when this was planned: somebody changed it, or it changes itself; "
        "the same command plans anew"
    )


def _from_file(file: Path) -> ModuleType:
    name = file.stem if file.stem not in sys.modules else f"{file.stem}_of_model_path"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def check(arch: Mapping[str, Any], before: set[str]) -> None:
    """That all it imported is what its key was made of. Raises StageError.

    before   names of the modules that were there without it
    """
    planned = set(arch["files"].values())
    for name, module in [item for item in sys.modules.items() if item[0] not in before]:
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not is_theirs(file):
            continue
        try:
            content = Path(file).read_bytes()
        except OSError:
            content = b""
        if hashlib.sha256(content).hexdigest() in planned:
            continue
        if {name, Path(file).name} & arch["files"].keys():
            raise StageError(_changed(arch["path"], Path(file).name))
        raise StageError(
            f"model.path={arch['path']}: it imports {name} ({file}) in a way that is not seen by reading its import "
            f"statements, so a change of that file would go unnoticed; name it: model.sources=[{file}]"
        )

"""What planner and worker share about the two files between them (task.py): how they are written and read, and what both
sides know of full disks, refused memory and the environment of a Python of ours. Here the standard library only.
"""

import contextlib
import errno
import json
import os
import resource
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import ane_sweep
from ane_sweep.errors import AneSweepError

MEMORY_VARIABLE = "ANE_SWEEP_MEMORY_BYTES"  # a task's limit, for the processes that its stage starts
PARENT_VARIABLE = "ANE_SWEEP_PARENT"  # the parent's pid: not in task.json, which may travel to another host
WAITING_VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # how libgomp's threads wait for work
STDERR = "stderr.txt"  # what a task printed there, in its folder
EXIT_NO_SPACE = 74  # sysexits' EX_IOERR: the worker could not even write its result, the disk is full

# How native code says that an allocation was refused, in lower case: torch's allocator, the C library's ENOMEM,
# libstdc++, numpy, Rust's allocator (safetensors, tokenizers), the Metal backend,
# libgomp (no room for a thread's stack).
_MEMORY_SIGNS = (
    "can't allocate memory",
    "cannot allocate memory",
    "defaultcpuallocator",
    "std::bad_alloc",
    "unable to allocate",
    "memory allocation of",
    "out of memory",
    "memoryerror",
    "thread creation failed",
)
_SPACE_SIGNS = ("no space left on device", "os error 28", "disk quota exceeded")
_SPACE_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


class Interrupted(AneSweepError):
    """The sweep is being stopped: this task was killed, or never started, and left no result."""


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """The error itself, then what it was raised from, outermost first."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def speaks_of_memory(text: str) -> bool:
    """Whether a message or a stderr holds one of the phrases by which native code reports a refused allocation."""
    lowered = text.lower()
    return any(sign in lowered for sign in _MEMORY_SIGNS)


def speaks_of_space(error: BaseException) -> bool:
    """Whether an error means a full disk or an exhausted quota, also where native code says it only in words."""
    if isinstance(error, OSError) and error.errno in _SPACE_ERRNOS:
        return True
    return not isinstance(error, MemoryError) and any(sign in str(error).lower() for sign in _SPACE_SIGNS)


def no_space_reason(where: str | os.PathLike[str] | None) -> str:
    """The sentence for a full disk; `where` is the file or folder that was being written."""
    return (
        f"no space left on device while writing {os.fspath(where) if where else 'its files'}; "
        "free space or move outputs with out=PATH; nothing half-written stays"
    )


def python_environment() -> dict[str, str]:
    """The inherited environment for a Python of ours, to be started with -P: it finds ane_sweep, and whatever lies in the
    folder that it runs in is not imported. (An empty entry of PYTHONPATH is that folder, a relative one is below it.)"""
    env = dict(os.environ)
    paths = [os.path.abspath(path) for path in env.pop("PYTHONPATH", "").split(os.pathsep) if path]
    home = Path(ane_sweep.__file__).resolve().parents[1]
    if home.name not in ("site-packages", "dist-packages"):  # in front, those would shadow the standard library
        paths.insert(0, str(home))
    return env | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})


def peak_bytes() -> int:
    """Peak resident memory of this process so far, in bytes.

    Linux: VmHWM, which starts afresh at exec. Not ru_maxrss: a child that was vforked from a big parent inherits the
    parent's figure there (a 9 MB child of a 500 MB parent reads 510 MB, measured).
    """
    if (high_water := status_bytes("VmHWM")) is not None:
        return high_water
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def status_bytes(name: str) -> int | None:
    """A kB field of this process's /proc/self/status in bytes; None where there is none."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file to write in place of `path`: that holds the old content or the new, never half of one, whatever happens."""
    handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    aside = Path(name)
    try:
        yield aside
        os.fsync(handle)
        os.chmod(aside, 0o644)  # mkstemp leaves 0600; what we write is for other people's scripts too
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON, whole or not at all. Raises ValueError on NaN."""
    with whole(path) as aside:
        aside.write_bytes(as_json(value))


def as_json(value: Any) -> bytes:
    """The bytes that `write_json` writes."""
    return json.dumps(value, allow_nan=False, indent=1).encode()


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None when the file is absent, torn or holds something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=no_constant)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def no_constant(word: str) -> NoReturn:
    """For json.loads, which takes NaN and Infinity where nobody says no."""
    raise ValueError(f"{word} is not a JSON value")


def remove_tree(path: Path) -> None:
    """Delete a folder and all in it, also where a tool left read-only folders behind. Absent is fine; never raises."""
    shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        return
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            os.chmod(folder, stat.S_IRWXU)
    shutil.rmtree(path, ignore_errors=True)

"""A cache's folder: made or recognised on opening, tested by writing to it, and its errors explained."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ane_sweep import native_errors
from ane_sweep.bridge import disk
from ane_sweep.errors import StoreError
from ane_sweep.store import locks

SCHEMA = 1
OWN_NAMES = {"SCHEMA", "tmp", "locks", "history.jsonl"}


def open_cache(root: Path, writes: bool) -> None:
    """Make the cache, or check that it is one of ours and writable; a folder of something else is left unchanged."""
    root.mkdir(parents=True, exist_ok=True)
    known = _check_schema(root)
    for name in ("tmp", "locks"):
        disk.make_folder(root, name)
    with locks.hold(root / "locks" / "tmp.lock"):  # so that a sweep_tmp does not take the probe away
        if writes:
            _probe(root / "tmp")
        if not known:
            aside = root / "tmp" / f"schema-{os.getpid()}"
            aside.write_text(f"{SCHEMA}\n", encoding="utf-8")
            os.replace(aside, root / "SCHEMA")


def _check_schema(root: Path) -> bool:
    """Return True for a cache of this schema, False for an empty place. Raises StoreError for everything else."""
    step = "move that folder away, or choose another one with out=PATH"
    try:
        found = (root / "SCHEMA").read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        others = sorted({path.name for path in root.iterdir() if not path.name.startswith(".")} - OWN_NAMES)
        if not others:
            return False
        names = ", ".join(others[:3])
        raise StoreError(f"{root} is no ane-sweep cache: it has no SCHEMA file, but holds {names}; {step}") from None
    if found == str(SCHEMA):
        return True
    raise StoreError(f"{root} has cache schema {found[:20] or '(empty)'}, this ane-sweep needs {SCHEMA}; {step}")


def _probe(folder: Path) -> None:
    """Write a test file: permission bits do not bind root, and a full disk shows only on writing."""
    descriptor, name = tempfile.mkstemp(prefix="probe-", dir=folder)
    try:
        os.write(descriptor, b"\0" * 65536)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
        os.unlink(name)


@contextlib.contextmanager
def explain_errors(root: Path) -> Iterator[None]:
    """Turn errors of a folder that is not writable into one sentence with the next step."""
    try:
        yield
    except OSError as error:
        if native_errors.is_out_of_space(error):
            raise StoreError(native_errors.no_space_reason(root)) from error
        reasons = {
            errno.EROFS: "is on a read-only file system",
            errno.EACCES: "may not be written by this user",
            errno.EPERM: "may not be written by this user",
            errno.ENOTDIR: "has a file where a folder is needed",
            errno.EEXIST: "has a file where a folder is needed",
        }
        what = reasons.get(error.errno or 0, f"cannot be used: {error.strerror or error}")
        at = f" ({error.filename})" if error.filename and str(error.filename) != str(root) else ""
        raise StoreError(f"{root} {what}{at}; choose another folder with out=PATH or ANE_SWEEP_OUT") from error

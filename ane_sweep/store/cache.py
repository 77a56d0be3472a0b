"""The artifact cache: same key, same artifact; a folder is complete or absent.

    ROOT/SCHEMA                       an integer; a cache with another one is never read or written
    ROOT/<stage>/<key[:2]>/<key>/     the artifact's files, files.json (files.py), result.json (written last)
    ROOT/tmp/<pid-start-random>/      what a living process is writing; the .alive in it is locked by that process
    ROOT/locks/                       flock files
    ROOT/history.jsonl                seconds and bytes of past tasks, for estimates

An artifact is written aside under tmp/, flushed to disk with its folders, then renamed: after kill -9 or a power cut
it is there or it is not. Only results with status ok are stored.
"""

import contextlib
import errno
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ane_sweep.bridge import disk, trouble
from ane_sweep.bridge.task import TaskResult
from ane_sweep.errors import StoreError
from ane_sweep.store import files, locks, past
from ane_sweep.store.past import Past

if TYPE_CHECKING:
    from ane_sweep.bridge.task import Task

SCHEMA = 1
Inputs = Mapping[str, files.Origin]  # role -> the artifact that a task was given
NONE: Inputs = {}
_OWN_NAMES = {"SCHEMA", "tmp", "locks", "history.jsonl"}
_ALIVE = ".alive"


class Store:
    """An open cache. Any number of processes may hold one; while one is open, nobody else's prune touches the cache.

    Raises StoreError, with the next step, for a folder that is read-only, full, foreign or of another schema; a full one
    will do where nothing is to be written (writes=False), only deleted.
    Later, a disk that fills up is a StoreError of the method that met it: one task's trouble, not the sweep's.
    """

    def __init__(self, root: Path, writes: bool = True) -> None:
        self.root = root.absolute()
        self._owner: Path | None = None
        self._locks: list[locks.Lock] = []
        self._mutex = threading.Lock()
        with _explained(self.root):
            _open_folder(self.root, writes)
        self._users = self._open_lock(self.root / "locks" / "users.lock")
        self._users.take(shared=True)

    def close(self) -> None:
        """Let go of the cache; what this process wrote aside and neither committed nor discarded is deleted."""
        owner, self._owner = self._owner, None
        if owner is not None:
            disk.remove_tree(owner)
        for lock in self._locks:
            lock.close()
        self._locks = []

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Artifacts

    def path(self, stage: str, key: str) -> Path:
        """Where an artifact is or would be."""
        return self.root / stage / key[:2] / key

    def lookup(self, stage: str, key: str) -> Path | None:
        """The artifact's folder if it is there with files of the right sizes; marks it as used now."""
        path = self.path(stage, key)
        if files.damage(path, content=False):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return path

    def intact(self, stage: str, key: str) -> Path | None:
        """The artifact's folder if it is there and holds, byte for byte, what was stored."""
        path = self.lookup(stage, key)
        return None if path is None or files.damage(path, content=True) else path

    def has(self, task: "Task") -> bool:
        """Whether a task's artifact is there; marks it as used now."""
        return self.lookup(task.stage, task.key) is not None

    def fault(self, stage: str, key: str, inputs: Inputs) -> str | None:
        """Why nothing may be derived from what lies in an artifact's place, as one clause: it reads every byte, once a
        process. None for a whole artifact that was made from these very `inputs`, and where there is nothing."""
        path = self.path(stage, key)
        if not path.exists():
            return None
        if found := files.damage(path, content=True):
            return found
        stored = files.listing(path)
        if stored is not None and stored.inputs == inputs:
            return None
        return "what it was made from has been made again since, and is not the same"

    def stage_aside(self, stage: str, key: str) -> Path:
        """A fresh empty folder on the cache's file system, to be committed or discarded."""
        return self.scratch(f"{stage}-{key[:8]}")

    def scratch(self, name: str = "tmp") -> Path:
        """A fresh empty folder, also for a task's TMPDIR: should this process die, a later `sweep_tmp` deletes it."""
        with _explained(self.root):
            path = self._own_folder() / f"{name}-{os.urandom(4).hex()}"
            path.mkdir()
            return path

    def commit(self, aside: Path, stage: str, key: str, result: TaskResult, inputs: Inputs = NONE) -> Path:
        """Make a finished folder the artifact of (stage, key), made from `inputs`, and return its place.

        If another process was first, ours is deleted and theirs returned: equal keys mean equal artifacts.
        Raises StoreError, with `aside` deleted, when the disk is full; ValueError for a result that is not ok.
        """
        if result.status != "ok":
            raise ValueError(f"only ok results are stored, this one is {result.status!r}")
        final = self.path(stage, key)
        try:
            with _explained(self.root):
                files.seal(aside, result, inputs)
                final.parent.mkdir(parents=True, exist_ok=True)
                self._rename(aside, final)
                for folder in (final.parent, final.parent.parent, self.root):
                    files.flush(folder)
        except BaseException:
            disk.remove_tree(aside)
            raise
        return final

    def _rename(self, aside: Path, final: Path) -> None:
        while True:
            try:
                os.rename(aside, final)  # replaces an empty folder at most, never a filled one
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            if files.damage(final, content=False) is None:
                disk.remove_tree(aside)
                return
            with contextlib.suppress(FileNotFoundError):  # not made by us, or damaged since
                self._bury(final)

    def discard(self, aside: Path) -> None:
        """Delete a folder got from stage_aside or scratch; one that was committed or deleted before is fine."""
        disk.remove_tree(aside)

    def remove(self, stage: str, key: str) -> None:
        """Delete what lies in an artifact's place. Raises StoreError where it cannot be moved away."""
        with _explained(self.root), contextlib.suppress(FileNotFoundError):
            self._bury(self.path(stage, key))

    # Locks

    def lock(self, stage: str, key: str, wait: locks.Waiting | None = None) -> AbstractContextManager[locks.Lock]:
        """Held while one process makes an artifact, so that no other makes it too: lock, look up again, then work.

        Take it before the machine lock, never after.
        """
        return locks.held(self.root / "locks" / f"{stage}-{key}.lock", wait=wait, keep=False)

    def machine_lock(self, shared: bool, wait: locks.Waiting | None = None) -> AbstractContextManager[None]:
        """shared=True around preparing, False around timing: while something is timed, nothing else is prepared.

        Holds among all processes on this cache.
        """
        return locks.machine(self.root / "locks", shared=shared, wait=wait)

    def _open_lock(self, path: Path) -> locks.Lock:
        self._locks.append(locks.Lock(path))
        return self._locks[-1]

    # Leftovers

    def _own_folder(self) -> Path:
        with self._mutex:
            if self._owner is None:
                me = psutil.Process()
                owner = self.root / "tmp" / f"{me.pid}-{int(me.create_time())}-{os.urandom(4).hex()}"
                with locks.held(self.root / "locks" / "tmp.lock"):  # a sweep_tmp must not see it before it is locked
                    owner.mkdir()
                    self._open_lock(owner / _ALIVE).take()
                self._owner = owner
            return self._owner

    def sweep_tmp(self) -> list[Path]:
        """Delete what dead processes left under tmp/, which is returned, and locks/. A living process holds its lock.

        The lock, not the pid in the name: pids mean nothing across containers that share a cache, and are reused.
        """
        removed = []
        with locks.held(self.root / "locks" / "tmp.lock"):
            for owner in sorted((self.root / "tmp").iterdir()):
                if owner.is_dir() and not _is_alive(owner):
                    disk.remove_tree(owner)
                    removed.append(owner)
                elif not owner.is_dir():
                    owner.unlink(missing_ok=True)
        for path in (self.root / "locks").glob("*-*.lock"):  # named after keys
            locks.drop(path)
        return removed

    def prune(self, max_bytes: int | None = None, older_than_days: float | None = None) -> list[Path]:
        """Delete artifacts by last use: those older than so many days, then the oldest until `max_bytes` remain.

        Returns the folders removed. Raises StoreError while another process uses this cache.
        """
        if not self._users.attempt():
            self._users.take(shared=True)  # a conversion that fails may lose what was held
            raise StoreError(f"{self.root} is in use by another ane-sweep; prune it when that has ended")
        try:
            oldest = time.time() - older_than_days * 86400 if older_than_days is not None else float("-inf")
            removed = []
            entries = sorted(_entries(self.root), key=lambda entry: entry[0])
            total = sum(entry[1] for entry in entries)
            for used, size, path in entries:
                if used < oldest or (max_bytes is not None and total > max_bytes):
                    self._bury(path)
                    total -= size
                    removed.append(path)
            return removed
        finally:
            self._users.take(shared=True)

    def _bury(self, path: Path) -> None:
        """Absent at once, deleted after: never half there."""
        try:
            grave = self.scratch("grave")
        except StoreError:  # too full for one more folder; without its result an artifact is absent as well
            (path / files.RESULT).unlink(missing_ok=True)
            disk.remove_tree(path)
            return
        os.rename(path, grave / "it")
        disk.remove_tree(grave)

    # History

    def record_history(self, *, stage: str, work: int, seconds: float, peak_bytes: int | None) -> None:
        """Remember what a finished task over `work` parameter bytes took. Never raises for a disk that is full."""
        past.append(self.root / "history.jsonl", Past(stage, work, seconds, peak_bytes))

    def past(self) -> list[Past]:
        """What finished tasks took, oldest first."""
        return past.read(self.root / "history.jsonl")


def _is_alive(owner: Path) -> bool:
    try:
        lock = locks.Lock(owner / _ALIVE, create=False)
    except OSError:
        return False
    try:
        return not lock.attempt()
    finally:
        lock.close()


def _open_folder(root: Path, writes: bool) -> None:
    """Make the cache or check that it is one of ours and can be written; a foreign folder is left as it is."""
    root.mkdir(parents=True, exist_ok=True)
    known = _check_schema(root)
    for name in ("tmp", "locks"):
        (root / name).mkdir(exist_ok=True)
    with locks.held(root / "locks" / "tmp.lock"):  # so that a sweep_tmp does not take the probe away
        if writes:
            _probe(root / "tmp")
        if not known:
            aside = root / "tmp" / f"schema-{os.getpid()}"
            aside.write_text(f"{SCHEMA}\n", encoding="utf-8")
            os.replace(aside, root / "SCHEMA")


def _check_schema(root: Path) -> bool:
    """True for a cache of this schema, False for an empty place. Raises StoreError for all else."""
    step = "move that folder away, or choose another one with out=PATH"
    try:
        found = (root / "SCHEMA").read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        others = sorted({path.name for path in root.iterdir() if not path.name.startswith(".")} - _OWN_NAMES)
        if not others:
            return False
        names = ", ".join(others[:3])
        raise StoreError(f"{root} is no ane-sweep cache: it has no SCHEMA file, but holds {names}; {step}") from None
    if found == str(SCHEMA):
        return True
    raise StoreError(f"{root} has cache schema {found[:20] or '(empty)'}, this ane-sweep needs {SCHEMA}; {step}")


def _probe(folder: Path) -> None:
    """Write for real: permission bits mean nothing to root, and a full disk shows only when written to."""
    descriptor, name = tempfile.mkstemp(prefix="probe-", dir=folder)
    try:
        os.write(descriptor, b"\0" * 65536)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
        os.unlink(name)


@contextlib.contextmanager
def _explained(root: Path) -> Iterator[None]:
    """Turn the errors of a folder that cannot be written into one sentence with the next step."""
    try:
        yield
    except OSError as error:
        if trouble.is_out_of_space(error):
            raise StoreError(f"{root}: no space left on device; free space or move outputs with out=PATH") from error
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


def _entries(root: Path) -> Iterator[tuple[float, int, Path]]:
    """(last use, bytes, folder) of every artifact."""
    for path in root.glob("*/??/*"):
        if path.is_dir() and path.relative_to(root).parts[0] not in _OWN_NAMES:
            yield path.stat().st_mtime, files.size(path), path


def open_store(out: Path, writes: bool = True) -> "Store":
    """The cache of an outputs folder."""
    return Store(out / "cache", writes)

"""The artifact cache: equal keys mean equal artifacts, and an artifact's folder is complete or absent.

    ROOT/SCHEMA                       an integer; a cache with another number is never read or written
    ROOT/<stage>/<key[:2]>/<key>/     the artifact's files, files.json (files.py), result.json (written last)
    ROOT/tmp/<pid-start-random>/      files that a living process is writing; that process locks the .alive in it
    ROOT/locks/                       flock files
    ROOT/history.jsonl                seconds and bytes of past tasks, for estimates

An artifact is written under tmp/, flushed to disk with its folders, then renamed, so that after kill -9 or a power cut
it is complete or absent. Only results with status ok are stored.
"""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import psutil

from ane_sweep.bridge import disk
from ane_sweep.bridge.task import Task, TaskResult
from ane_sweep.errors import StoreError
from ane_sweep.store import files, locks, past, root_folder
from ane_sweep.store.past import Past

Inputs = Mapping[str, files.Origin]  # role -> the artifact that a task was given
NONE: Inputs = {}
_ALIVE = ".alive"


class Store:
    """An open cache. Any number of processes may hold one open; meanwhile no other process can prune it.

    Raises StoreError, with the next step, for a folder that is read-only, full, foreign or of another schema; a full
    one can be opened for reading and deleting (writes=False). A disk that fills up later raises StoreError in the
    current method, which loses one task, not the sweep.
    """

    def __init__(self, root: Path, writes: bool = True) -> None:
        self.root = root.absolute()
        self._owner: Path | None = None
        self._locks: list[locks.Lock] = []
        self._mutex = threading.Lock()
        with root_folder.explain_errors(self.root):
            root_folder.open_cache(self.root, writes)
        self._users = self._open_lock(self.root / "locks" / "users.lock")
        self._users.take(shared=True)

    def close(self) -> None:
        """Close the cache, and delete temporary files of this process that were neither committed nor discarded."""
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
        """Return the folder of an artifact, which need not exist."""
        return self.root / stage / key[:2] / key

    def lookup(self, stage: str, key: str) -> Path | None:
        """Return the artifact's folder if it has files of the right sizes, and mark it as used now."""
        path = self.path(stage, key)
        if files.damage(path, content=False) or _behind_a_link(path):  # mostly nothing is there: the first look tells
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return path

    def intact(self, stage: str, key: str) -> Path | None:
        """Return the artifact's folder if every byte is unchanged since it was stored."""
        path = self.lookup(stage, key)
        return None if path is None or files.damage(path, content=True) else path

    def has(self, task: Task) -> bool:
        """Return True if a task's artifact is stored, and mark it as used now."""
        return self.lookup(task.stage, task.key) is not None

    def fault(self, stage: str, key: str, inputs: Inputs) -> str | None:
        """Describe why a stored artifact cannot be used, as one clause; each artifact is read completely once per
        process.

        Return None for an intact artifact that was made from these very `inputs`, and if no artifact is stored.
        """
        path = self.path(stage, key)
        if not os.path.lexists(path):
            return None
        if _behind_a_link(path):
            return "a link lies where its folder should be"
        if damage := files.damage(path, content=True):
            return damage
        stored = files.listing(path)
        if stored is not None and stored.inputs == inputs:
            return None
        return "what it was made from has been made again since, and is not the same"

    def stage_aside(self, stage: str, key: str) -> Path:
        """Return a fresh empty folder on the cache's file system, to be committed or discarded."""
        return self.scratch(f"{stage}-{key[:8]}")

    def scratch(self, name: str = "tmp") -> Path:
        """Return a fresh empty folder. If this process dies, a later `sweep_tmp` deletes the folder."""
        with root_folder.explain_errors(self.root):
            path = self._own_folder() / f"{name}-{os.urandom(4).hex()}"
            path.mkdir()
            return path

    def commit(self, aside: Path, stage: str, key: str, result: TaskResult, inputs: Inputs = NONE) -> Path:
        """Move a finished folder to the place of the artifact (stage, key), made from `inputs`, and return that place.

        If another process was first, ours is deleted and the other returned, as equal keys mean equal artifacts.
        Raises StoreError, with `aside` deleted, when the disk is full; ValueError for a result that is not ok.
        """
        if result.status != "ok":
            raise ValueError(f"only ok results are stored, this one is {result.status!r}")
        final = self.path(stage, key)
        try:
            with root_folder.explain_errors(self.root):
                files.seal(aside, result, inputs)
                self._rename(aside, final)
                for folder in (final.parent, final.parent.parent, self.root):
                    files.flush(folder)
        except BaseException:
            disk.remove_tree(aside)
            raise
        return final

    def _rename(self, aside: Path, final: Path) -> None:
        while True:
            disk.make_folder(self.root, *final.parent.relative_to(self.root).parts)
            try:
                os.rename(aside, final)  # replaces an empty folder at most, never a filled one
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
            if not final.is_symlink() and files.damage(final, content=False) is None:
                disk.remove_tree(aside)
                return
            self._bury(final)  # not made by us, or damaged since

    def discard(self, aside: Path) -> None:
        """Delete a folder of stage_aside or scratch, unless it was already committed or deleted."""
        disk.remove_tree(aside)

    def remove(self, stage: str, key: str) -> None:
        """Delete an artifact, or any file in its place. Raises StoreError if that fails."""
        with root_folder.explain_errors(self.root):
            self._bury(self.path(stage, key))

    # Locks

    def lock(self, stage: str, key: str, wait: locks.Waiting | None = None) -> AbstractContextManager[locks.Lock]:
        """Return the lock under which one process makes an artifact; look for the artifact again after getting the
        lock.

        Take this lock before the machine lock, never after.
        """
        return locks.hold(self.root / "locks" / f"{stage}-{key}.lock", wait=wait, keep=False)

    def machine_lock(self, shared: bool, wait: locks.Waiting | None = None) -> AbstractContextManager[None]:
        """Return the lock of this machine, shared for preparing and exclusive for timing, so that these never overlap.

        It works among all processes on this cache.
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
                with locks.hold(self.root / "locks" / "tmp.lock"):  # a sweep_tmp must not see it before it is locked
                    owner.mkdir()
                    self._open_lock(owner / _ALIVE).take()
                self._owner = owner
            return self._owner

    def sweep_tmp(self) -> list[Path]:
        """Delete files of dead processes in tmp/ and locks/, and return the folders deleted. A living process holds its
        lock.

        The lock decides, not the pid in the name: pids are meaningless across containers that share a cache, and are
        reused. A cache that is a link is not touched, as it is outside the outputs folder.
        """
        if self.root.is_symlink():
            return []
        removed = []
        with locks.hold(self.root / "locks" / "tmp.lock"), disk.open_folder(self.root, "tmp") as tmp:
            for owner in sorted((self.root / "tmp").iterdir()) if tmp is not None else ():
                is_folder = owner.is_dir() and not owner.is_symlink()
                if tmp is not None and not (is_folder and _is_alive(owner)):
                    disk.remove_entry(tmp, owner.name)
                    removed += [owner] if is_folder else []
        for path in (self.root / "locks").glob("*-*.lock"):  # named after keys
            if (lock := locks.tried(path, create=False)) is not None:
                lock.close(delete=True)
        return removed

    def prune(self, max_bytes: int | None = None, older_than_days: float | None = None) -> list[Path]:
        """Delete artifacts by last use: those older than so many days, then the oldest until `max_bytes` remain.

        Returns the folders removed. Raises StoreError while another process uses this cache, and for a cache that is a link.
        """
        if self.root.is_symlink():
            raise StoreError(
                f"{self.root} is a link to {os.readlink(self.root)}, outside of the outputs folder, where nothing is deleted; "
                "make the outputs folder itself the link, or delete by hand"
            )
        if not self._users.attempt():
            self._users.take(shared=True)  # a conversion that fails may lose what was held
            raise StoreError(f"{self.root} is in use by another ane-sweep; prune it when that has ended")
        try:
            oldest = time.time() - older_than_days * 86400 if older_than_days is not None else float("-inf")
            removed = []
            entries = sorted(_entries(self.root), key=lambda entry: entry[0])
            total = sum(entry[1] for entry in entries)
            for used, size, path in entries:
                is_due = used < oldest or (max_bytes is not None and total > max_bytes)
                if is_due and self._bury(path):
                    total -= size
                    removed.append(path)
            return removed
        finally:
            self._users.take(shared=True)

    def _bury(self, path: Path) -> bool:
        """Delete an artifact in one step for readers. Return False if it was absent, or is behind a link, where nothing is deleted."""
        stage, part, key = path.relative_to(self.root).parts
        with disk.open_folder(self.root, stage, part) as folder:
            if folder is None:
                return False
            try:
                grave = self.scratch("grave")
            except StoreError:  # too full for one more folder; without its result an artifact is absent as well
                with disk.open_folder(self.root, stage, part, key) as artifact:
                    if artifact is not None:
                        disk.remove_entry(artifact, files.RESULT)
                disk.remove_entry(folder, key)
                return True
            try:
                os.rename(key, grave / "it", src_dir_fd=folder)
            except FileNotFoundError:
                return False
            finally:
                disk.remove_tree(grave)
        return True

    # History

    def record_history(self, task: Task, result: TaskResult) -> None:
        """Record the duration and peak memory of a finished task. Never raises for a full disk."""
        entry = Past(task.stage, task.work, result.seconds or 0.0, result.peak_bytes, task.sort, task.rule_s)
        past.append(self.root / "history.jsonl", entry)

    def past(self) -> list[Past]:
        """Return the durations and peaks of finished tasks, oldest first."""
        return past.read(self.root / "history.jsonl")


def _is_alive(owner: Path) -> bool:
    try:
        lock = locks.Lock(owner / _ALIVE, create=False)
    except OSError:
        return False
    with contextlib.closing(lock):
        return not lock.attempt()


def _entries(root: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield (last use, bytes, folder) of every artifact; folders behind links are left out."""
    for stage in _folders(root):
        for part in _folders(stage) if stage.name not in root_folder.OWN_NAMES else ():
            for path in _folders(part) if len(part.name) == 2 else ():
                yield path.stat().st_mtime, files.size(path), path


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]


def _behind_a_link(path: Path) -> bool:
    """Return True if an artifact's folder, or one of the two that it lies in, is a link."""
    return any(folder.is_symlink() for folder in (path, path.parent, path.parent.parent))


def open_store(out: Path, writes: bool = True) -> "Store":
    """Open the cache of an outputs folder."""
    return Store(out / "cache", writes)

"""Locks between processes on one cache. All are flock, used only here: the kernel releases them when a process dies in
any way.

To avoid deadlocks, take a key's lock first and the machine's lock inside it, never in reverse.
"""

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ane_sweep.bridge.protocol import Interrupted
from ane_sweep.errors import StoreError

_POLL_S = 0.1


@dataclass(frozen=True)
class Waiting:
    """The way to wait for a lock: until `stop` is set, which raises Interrupted; `tell` is called once if waiting is needed."""

    stop: threading.Event
    tell: Callable[[], None] = lambda: None


class Lock:
    """An open lock file. It can be held exclusively or shared; locking again changes between the two.

    Two locks in one process exclude each other too. Closing releases the lock, and so does the end of the process.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        if create and path.is_symlink():  # it may lead out of the outputs
            path.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        # A file object: whoever forgets to close it lets go of it all the same.
        self._file = os.fdopen(os.open(path, flags, 0o666), "r+b", 0)
        self.descriptor = self._file.fileno()

    def attempt(self, *, shared: bool = False) -> bool:
        """Lock the file if that is possible now, and return whether it was."""
        try:
            fcntl.flock(self.descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def take(self, *, shared: bool = False, wait: Waiting | None = None) -> None:
        """Wait for the lock. Without `wait` this blocks in the kernel; with it, it tries ten times a second.

        Raises StoreError for a file system without locks.
        """
        told = False
        try:
            if wait is None:
                fcntl.flock(self.descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            while wait is not None and not self.attempt(shared=shared):
                if not told:
                    wait.tell()
                    told = True
                if wait.stop.is_set():
                    raise Interrupted(
                        f"the sweep is being stopped; it was waiting for {self.path.name}, which another holds"
                    )
                time.sleep(_POLL_S)  # not stop.wait: a signal handler that sets it in this thread would deadlock
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise StoreError(
                    f"{self.path.parent} is on a file system without file locks ({error.strerror}); "
                    "choose a folder on a local disk with out=PATH"
                ) from error
            raise

    def is_its_file(self) -> bool:
        """Return False if the last holder deleted the file while we waited, so that the path has another file or none."""
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        ours = os.fstat(self.descriptor)
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)

    def close(self, *, delete: bool = False) -> None:
        """Release the lock; `delete` its file first, which waiting processes notice by `is_its_file`."""
        if delete:
            self.path.unlink(missing_ok=True)
        self._file.close()


@contextlib.contextmanager
def hold(path: Path, *, shared: bool = False, wait: Waiting | None = None, keep: bool = True) -> Iterator[Lock]:
    """Hold a lock on `path`, exclusive or shared, in this context. `keep=False` deletes the file at the end (for the
    thousands of locks named after keys).
    """
    while True:
        lock = Lock(path)
        try:
            lock.take(shared=shared, wait=wait)
            if keep or lock.is_its_file():
                break
        except BaseException:
            lock.close()
            raise
        lock.close()
    try:
        yield lock
    finally:
        lock.close(delete=not keep)


def tried(path: Path, *, create: bool = True) -> Lock | None:
    """Return the lock, held exclusively, if that is possible now; None if another process holds it or there is no such file."""
    try:
        lock = Lock(path, create=create)
    except OSError:
        if create:
            raise
        return None
    if lock.attempt() and lock.is_its_file():
        return lock
    lock.close()
    return None


@contextlib.contextmanager
def machine(folder: Path, *, shared: bool, wait: Waiting | None = None) -> Iterator[None]:
    """Hold the machine's lock in this context: many processes prepare (shared), or one times (exclusive), among all
    that use `folder`.

    A waiting timing holds a second lock, the turnstile, so that new preparations cannot starve it.
    """
    with (
        hold(folder / "turnstile.lock", shared=shared, wait=wait) as turn,
        hold(folder / "machine.lock", shared=shared, wait=wait),
    ):
        if shared:
            fcntl.flock(turn.descriptor, fcntl.LOCK_UN)
        yield

"""Locks between processes on one cache. All are flock: the kernel lets go of them when a process dies, however it dies.

Order, or sweeps can wait for each other in a ring: a key's lock first, the machine's lock inside it, never the reverse.
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

from ane_sweep.bridge import Interrupted
from ane_sweep.errors import StoreError

_POLL_S = 0.1


@dataclass(frozen=True)
class Waiting:
    """How to wait: until `stop` is set, which raises Interrupted; `tell` is called once, if there is need to wait."""

    stop: threading.Event
    tell: Callable[[], None] = lambda: None


@contextlib.contextmanager
def held(path: Path, *, shared: bool = False, wait: Waiting | None = None, keep: bool = True) -> Iterator[int]:
    """Hold `path` locked, alone or shared; yields its descriptor. Two uses in one process exclude each other too.

    Without `wait` this blocks in the kernel; with it, it looks ten times a second. `keep=False` deletes the file on
    leaving (for locks named after keys: there would be thousands).
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            acquire(descriptor, kind, path, wait)
            if keep or same_file(descriptor, path):
                break
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder deleted the file while we waited: the lock is another file now
    try:
        yield descriptor
    finally:
        if not keep:
            path.unlink(missing_ok=True)
        os.close(descriptor)


def acquire(descriptor: int, kind: int, path: Path, wait: Waiting | None = None) -> None:
    """flock, with a plain sentence where the file system has none."""
    try:
        if wait is None:
            fcntl.flock(descriptor, kind)
            return
        told = False
        while not attempt(descriptor, kind):
            if not told:
                wait.tell()
                told = True
            if wait.stop.is_set():
                raise Interrupted(f"the sweep is being stopped; it was waiting for {path.name}, which another holds")
            time.sleep(_POLL_S)  # not stop.wait: a signal handler that sets it in this thread would deadlock
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise StoreError(
                f"{path.parent} is on a file system without file locks ({error.strerror}); "
                "choose a folder on a local disk with out=PATH"
            ) from error
        raise


def attempt(descriptor: int, kind: int) -> bool:
    """Take the lock if that is possible right now."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def drop(path: Path) -> None:
    """Delete a lock's file if nobody holds it; who opened it meanwhile sees that and takes the next one (`held`)."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if attempt(descriptor, fcntl.LOCK_EX) and same_file(descriptor, path):
                path.unlink()
        finally:
            os.close(descriptor)


def same_file(descriptor: int, path: Path) -> bool:
    """Whether an open file is still what lies at a path."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)


@contextlib.contextmanager
def machine(folder: Path, *, shared: bool, wait: Waiting | None = None) -> Iterator[None]:
    """Many prepare (shared) or one times (alone), among all processes that use `folder`.

    A timing that waits holds the turnstile, so that preparations which keep coming cannot starve it.
    """
    with contextlib.ExitStack() as stack:
        turn = stack.enter_context(held(folder / "turnstile.lock", shared=shared, wait=wait))
        stack.enter_context(held(folder / "machine.lock", shared=shared, wait=wait))
        if shared:
            fcntl.flock(turn, fcntl.LOCK_UN)
        yield

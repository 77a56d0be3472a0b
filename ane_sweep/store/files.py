"""An artifact's files on disk: flushed, hashed, listed, and checked against that list.

    files.json   {files: [{name, bytes, sha256}], result: the same of result.json, inputs: {role: {key, sha256}}}

`inputs` names the artifacts that this one was made from, each with its `digest`.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ane_sweep.bridge import disk, kept
from ane_sweep.bridge.figures import Artifact
from ane_sweep.bridge.task import TaskResult

VERSION = 2  # of files.json: enters every key, so that what was stored in another form is made again
RESULT, FILES = "result.json", "files.json"
DIGESTS = "digests.json"  # of a task's folder in a run: name -> sha256
# Digests that this process has computed; valid while device, inode, size and mtime stay.
_hashed: dict[tuple[int, ...], str] = {}


@dataclass(frozen=True)
class File:
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Origin:
    """A stored artifact from which another was made, and the digest of its content."""

    key: str
    sha256: str


@dataclass(frozen=True)
class Listing:
    """The content of files.json."""

    files: list[File]
    result: File
    inputs: dict[str, Origin]


def artifact_files(folder: Path) -> list[Artifact]:
    """Return the files in an artifact, sorted, with names relative to it.

    A stored artifact was hashed when it was committed; any other folder is hashed now.
    """
    stored = listing(folder)
    files = stored.files if stored else _listed(folder)
    return [Artifact(file.name, str(folder / file.name), file.bytes, file.sha256) for file in files]


def listing(folder: Path) -> Listing | None:
    """Return files.json of a stored artifact, or None if it is missing or malformed."""
    return kept.as_kind(disk.read_json(folder / FILES), Listing)


def digest(folder: Path) -> str:
    """Return a digest of the names and contents of a stored artifact's files, without its result, which holds times."""
    stored = listing(folder)
    held = [[file.name, file.sha256] for file in stored.files] if stored else []
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()


def damage(folder: Path, *, content: bool) -> str | None:
    """Describe how a stored artifact is damaged, as one clause, or return None if it is intact.

    content   read every byte (once per process); otherwise only compare sizes
    """
    stored = listing(folder)
    if stored is None:
        return f"its {FILES} is missing or damaged"
    if not stored.files:
        return "it holds no files"
    for file in (*stored.files, stored.result):
        path = folder / file.name
        try:
            size = path.stat().st_size
            if size != file.bytes:
                return f"{file.name} has {size} bytes of {file.bytes}"
            if content and sha256(path) != file.sha256:
                return f"{file.name} holds other bytes than when it was stored"
        except OSError as error:
            return f"{file.name} cannot be read ({error.strerror})"
    return None


def seal(folder: Path, result: TaskResult, inputs: Mapping[str, Origin]) -> None:
    """Flush and hash every file, write files.json, then result.json, and flush the folders, so that the artifact can be renamed."""
    with ThreadPoolExecutor(1) as beside:  # the disk writes while this processor hashes
        flushed = beside.map(flush, _regular(folder))
        listed = _listed(folder)
    list(flushed)
    text = disk.as_json(result.to_plain())
    entry = File(RESULT, len(text), hashlib.sha256(text).hexdigest())
    disk.write_json(folder / FILES, msgspec.to_builtins(Listing(listed, entry, dict(inputs))))
    result.write(folder / RESULT)
    for name, _, _ in os.walk(folder, topdown=False):
        flush(Path(name))


def note_digests(folder: Path) -> None:
    """Write the digests of all files in a task's folder of a run to digests.json."""
    noted = {path.relative_to(folder).as_posix(): sha256(path) for path in _regular(folder) if path.name != DIGESTS}
    disk.write_json(folder / DIGESTS, noted)


def check_digests(folder: Path) -> str | None:
    """Describe a file of a task's folder that has changed since the task ended, as one clause, or return None."""
    noted = disk.read_json(folder / DIGESTS) or {}
    if RESULT not in noted:
        return f"it has no digests ({DIGESTS}), as a killed process or an earlier version leaves it"
    for name, digest in noted.items():
        try:
            if sha256(folder / name) != digest:
                return f"{name} holds other bytes than the task left"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return None


def sha256(path: Path) -> str:
    """Return the digest of a file's content; each file is read once per process."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        mark = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if mark not in _hashed:
            _hashed[mark] = hashlib.file_digest(file, "sha256").hexdigest()  # reads in pieces, whatever the size
        return _hashed[mark]


def flush(path: Path) -> None:
    """Make the kernel write a file, or a folder's entries, to the disk. (On macOS the drive may still delay it.)"""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def size(folder: Path) -> int:
    """Return the total bytes of all files below a folder."""
    return sum(path.stat().st_size for path in _regular(folder))


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user can still write on the file system of a folder, which need not exist yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _listed(folder: Path) -> list[File]:
    """Return an artifact's own files, sorted by name, which are hashed now."""
    paths = {path.relative_to(folder).as_posix(): path for path in _regular(folder)}
    return [
        File(name, paths[name].stat().st_size, sha256(paths[name])) for name in sorted(paths.keys() - {FILES, RESULT})
    ]


def _regular(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())

"""An artifact's files on disk: flushed, hashed, listed."""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from ane_sweep import bridge

RESULT, FILES = "result.json", "files.json"


def artifact_files(folder: Path) -> list[dict[str, Any]]:
    """[{name, path, bytes, sha256}] of the files in an artifact, names relative to it and sorted.

    A stored artifact was hashed once, when it was committed; any other folder is hashed now.
    """
    stored = bridge.read_json(folder / FILES)
    files = stored["files"] if stored else [_describe(path, folder) for path in _listed(folder)]
    return [{"name": file["name"], "path": str(folder / file["name"]), **file} for file in files]


def seal(folder: Path, result: dict[str, Any]) -> None:
    """Flush and hash every file, write files.json, then result.json, and flush the folders: ready to be renamed."""
    files = []
    for path in _listed(folder):
        files.append(_describe(path, folder))
        flush(path)
    bridge.write_json(folder / FILES, {"files": files})
    bridge.write_json(folder / RESULT, result)
    for name, _, _ in os.walk(folder, topdown=False):
        flush(Path(name))


def flush(path: Path) -> None:
    """Have the kernel write a file, or the names in a folder, to the disk. (On macOS the drive may still hold them.)"""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def free_bytes(folder: Path) -> int:
    """Bytes this user can still write on the file system of a folder, which need not exist yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _listed(folder: Path) -> list[Path]:
    own = (folder / FILES, folder / RESULT)
    found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path not in own]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def _describe(path: Path, folder: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # reads in pieces, whatever the size
        return {"name": path.relative_to(folder).as_posix(), "bytes": file.tell(), "sha256": digest}

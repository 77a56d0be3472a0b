"""Copy the compiled programs that Core ML leaves behind on a Mac, if they may be read.

    <home>/Library/Caches/<process>/com.apple.e5rt.e5bundlecache/   bundles of the user's own process; no source says if they
                                                                    hold the program itself
    /Library/Caches/com.apple.aned/<OS build>/                      the service's cache: root's, and so mostly unreadable

Only files written since a given moment are taken. This was never run on a Mac; any other host has no such files.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SERVICE = Path("/Library/Caches/com.apple.aned")
OWN = "Library/Caches/*/com.apple.e5rt.e5bundlecache"
MAX_FILES, MAX_BYTES = 256, 256 << 20  # of one step; more is counted, not copied


@dataclass
class CopiedPrograms:
    """The names of copied files in their folder, and a sentence for each file that was found but not copied."""

    files: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def copy_programs(home: Path, folder: Path, since: float, service: Path = SERVICE) -> CopiedPrograms:
    """Copy files written after `since` (seconds since the epoch) into `folder`, equal contents only once."""
    copied = CopiedPrograms()
    for root in [*home.glob(OWN), service]:
        if root.is_dir() and not os.access(root, os.R_OK | os.X_OK):
            copied.skipped.append(f"{root} cannot be read by this user, so the programs of the service stay unseen")
            continue
        for path in _find_written(root, since):
            _copy_file(path, folder, copied)
    copied.files.sort()
    return copied


def _find_written(root: Path, since: float) -> Iterator[Path]:
    for where, _, names in os.walk(root):
        for name in sorted(names):
            path = Path(where, name)
            if name.endswith(".hwx") or name == "net.plist":
                try:
                    if path.stat().st_mtime >= since:
                        yield path
                except OSError:
                    continue  # the service tidies up meanwhile


def _copy_file(path: Path, folder: Path, copied: CopiedPrograms) -> None:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES or len(copied.files) >= MAX_FILES:
            copied.skipped.append(
                f"{path.name} of {size / 1e6:.0f} MB was not kept: at most {MAX_FILES} files of {MAX_BYTES >> 20} MiB"
            )
            return
        data = path.read_bytes()
    except OSError as error:
        copied.skipped.append(f"{path.name} cannot be read: {error.strerror or error}")
        return
    name = f"{hashlib.sha256(data).hexdigest()[:12]}.{'hwx' if path.suffix == '.hwx' else 'net.plist'}"
    if name not in copied.files:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        copied.files.append(name)

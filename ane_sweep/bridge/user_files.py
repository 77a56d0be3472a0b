"""Files at a path that the user gave: a report, a bundle, arrays, a picture. Every verb writes such a file through here.

A regular file, or one that is not there yet, holds its old content or all of the new. A pipe, a device and a link are opened
and written to, as a shell's `>` does: they stay what they are, and standard error names what was written.
"""

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ane_sweep.bridge import disk
from ane_sweep.terminal import say

_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a block device", stat.S_IFSOCK: "a socket"}


@contextlib.contextmanager
def open_user_file(path: Path) -> Iterator[Path]:
    """Yield an empty file to write; when the block ends well, its content is written to the user's `path`.

    Raises OSError if `path` cannot be written, IsADirectoryError for a folder.
    """
    found = _look_at(path)
    if found is None or stat.S_ISREG(found.st_mode):
        with disk.replace_file(path, 0o644 if found is None else stat.S_IMODE(found.st_mode)) as aside:
            yield aside
        return
    with tempfile.TemporaryDirectory() as folder:
        aside = Path(folder) / "made"
        aside.touch()
        yield aside
        with open(aside, "rb") as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target)
    say(f"{path} is {_describe(path, found)}, which was written to")


def _look_at(path: Path) -> os.stat_result | None:
    """Return the status of what lies at `path`, of a link itself; None if nothing does. Raises IsADirectoryError."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder; give the name of a file", str(path))
    with contextlib.suppress(FileNotFoundError):
        return path.lstat()
    return None


def _describe(path: Path, found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return f"a link to {os.path.realpath(path)}"
    return _KINDS[stat.S_IFMT(found.st_mode)]

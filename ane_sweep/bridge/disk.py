"""Files and folders: atomic writes, strict JSON, the user's own files, and deletion that follows no link."""

import contextlib
import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from ane_sweep.terminal import say

_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a block device", stat.S_IFSOCK: "a socket"}


@contextlib.contextmanager
def replace_file(path: Path, mode: int = 0o644) -> Iterator[Path]:
    """Yield a temporary file whose content replaces `path` atomically: readers see all of the old content or all of the new."""
    handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    aside = Path(name)
    try:
        yield aside
        os.fsync(handle)
        os.chmod(aside, mode)  # mkstemp leaves 0600; what we write is for other people's scripts too
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def open_user_file(path: Path) -> Iterator[Path]:
    """Yield an empty file to write; if the block ends without an error, its content goes to the user's `path`. Every
    verb writes the files that the user names through this function.

    A regular or new file is replaced atomically. A pipe, a device and a link are opened and written to, as a shell's
    `>` does, and standard error names what was written. Raises OSError if `path` cannot be written, IsADirectoryError
    for a folder.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder; give the name of a file", str(path))
    found: os.stat_result | None = None
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
    if found is None or stat.S_ISREG(found.st_mode):
        with replace_file(path, 0o644 if found is None else stat.S_IMODE(found.st_mode)) as aside:
            yield aside
        return
    with tempfile.TemporaryDirectory() as folder:
        aside = Path(folder) / "made"
        aside.touch()
        yield aside
        with open(aside, "rb") as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target)
    link = f"a link to {os.path.realpath(path)}"
    what = link if stat.S_ISLNK(found.st_mode) else _KINDS[stat.S_IFMT(found.st_mode)]
    say(f"{path} is {what}, which was written to")


def write_json(path: Path, value: object) -> None:
    """Write strict JSON atomically. Raises ValueError on NaN."""
    with replace_file(path) as aside:
        aside.write_bytes(as_json(value))


def as_json(value: object) -> bytes:
    """Return a value as the bytes that `write_json` writes."""
    return json.dumps(value, allow_nan=False, indent=1).encode()


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, or None if the file is absent, torn or holds something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=no_constant)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def no_constant(word: str) -> NoReturn:
    """Refuse NaN and Infinity, which json.loads would accept by default."""
    raise ValueError(f"{word} is not a JSON value")


@contextlib.contextmanager
def open_folder(root: Path, *names: str) -> Iterator[int | None]:
    """Yield a descriptor of the folder `root`/names..., or None if it is absent or one of `names` is a link.

    Deleting through the descriptor stays in that folder even if its path leads elsewhere by then. `root` may be a link.
    """
    with contextlib.ExitStack() as stack:
        folder: int | None = None
        try:
            for name in (str(root), *names):
                links = os.O_NOFOLLOW if folder is not None else 0
                folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | links, dir_fd=folder)
                stack.callback(os.close, folder)
        except OSError:
            folder = None
        yield folder


def make_folder(root: Path, *names: str) -> Path:
    """Make the folder `root`/names... if it is absent, and return it. A link among `names` could lead anywhere: it is
    replaced by a folder, with a warning, and its target stays untouched.
    """
    root.mkdir(parents=True, exist_ok=True)
    path = root
    for name in names:
        path /= name
        if path.is_symlink():
            say(
                f"doubt: {path} was a link to {os.readlink(path)}; a folder takes its place, nothing behind it was touched"
            )
            path.unlink(missing_ok=True)
        path.mkdir(exist_ok=True)
    return path


def remove_tree(path: Path) -> None:
    """Delete a folder with its content, read-only folders included; a link is deleted without following it. An absent
    folder is no error, and nothing is raised.
    """
    with open_folder(path.parent) as parent:
        if parent is not None:
            remove_entry(parent, path.name)


def remove_entry(folder: int, name: str) -> None:
    """Delete the entry `name` of an open folder, following no link and raising nothing."""
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)
            return
        shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        for _, _, _, inner in os.fwalk(name, dir_fd=folder):  # what is left of it; follows no link
            os.fchmod(inner, stat.S_IRWXU)
        shutil.rmtree(name, ignore_errors=True, dir_fd=folder)

"""Files that are whole or absent, JSON that is strict, folders that go away."""

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn


@contextlib.contextmanager
def whole(path: Path, mode: int = 0o644) -> Iterator[Path]:
    """A file to write in place of `path`: that holds the old content or the new, never half of one, whatever happens."""
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


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON, whole or not at all. Raises ValueError on NaN."""
    with whole(path) as aside:
        aside.write_bytes(as_json(value))


def as_json(value: Any) -> bytes:
    """The bytes that `write_json` writes."""
    return json.dumps(value, allow_nan=False, indent=1).encode()


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None when the file is absent, torn or holds something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=no_constant)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def no_constant(word: str) -> NoReturn:
    """For json.loads, which takes NaN and Infinity where nobody says no."""
    raise ValueError(f"{word} is not a JSON value")


def remove_tree(path: Path) -> None:
    """Delete a folder and all in it, also where a tool left read-only folders behind. Absent is fine; never raises."""
    shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        return
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            os.chmod(folder, stat.S_IRWXU)
    shutil.rmtree(path, ignore_errors=True)

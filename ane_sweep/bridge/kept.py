"""JSON files that one command leaves for the next, read as a type.

A file that is torn, no JSON or of another form counts as absent: its content is made again, with one warning.
"""

from pathlib import Path
from typing import TypeVar

import msgspec

from ane_sweep.bridge import conversion, disk
from ane_sweep.terminal import say

T = TypeVar("T")
_told: set[str] = set()


def read(path: Path, kind: type[T], instead: str) -> T | None:
    """Return a file's content as `kind`, or None if it has another form; `instead` says in one clause what then happens."""
    found = as_kind(disk.read_json(path), kind)
    if found is None and path.exists():
        tell(f"{path} is damaged: {instead}")
    return found


def as_kind(value: object, kind: type[T]) -> T | None:
    """Return a JSON value as `kind`, or None if it has another form."""
    try:
        return None if value is None else conversion.convert(value, kind)
    except msgspec.ValidationError:
        return None


def tell(sentence: str) -> None:
    """Print a warning once, however often the damaged file is read."""
    if sentence not in _told:
        _told.add(sentence)
        say(f"doubt: {sentence}")

"""JSON files that one command writes and a later command reads, as a type.

A file that is damaged or has another form counts as absent: its content is made again, with one warning.
"""

from pathlib import Path
from typing import TypeVar

import msgspec

from ane_sweep.bridge import conversion, disk
from ane_sweep.terminal import say

T = TypeVar("T")
_told: set[str] = set()


def read(path: Path, kind: type[T], instead: str) -> T | None:
    """Read a JSON file as the type `kind`, or return None if it has another form; the clause `instead` tells the user
    what happens then.
    """
    found = as_kind(disk.read_json(path), kind)
    if found is None and path.exists():
        tell(f"{path} is damaged: {instead}")
    return found


def as_kind(value: object, kind: type[T]) -> T | None:
    """Convert a JSON value to the type `kind`, or return None if it has another form."""
    try:
        return None if value is None else conversion.convert(value, kind)
    except msgspec.ValidationError:
        return None


def tell(sentence: str) -> None:
    """Print a warning about a damaged file once, however often the file is read."""
    if sentence not in _told:
        _told.add(sentence)
        say(f"doubt: {sentence}")

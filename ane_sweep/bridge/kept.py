"""JSON that one command leaves for the next, read as the type that it must be.

A file that is torn, no JSON or of another form counts as absent: what it held is made again, and that is said once.
"""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ane_sweep.bridge import conversion, disk
from ane_sweep.terminal import say

T = TypeVar("T")
_told: set[str] = set()


def read(path: Path, kind: type[T], instead: str) -> T | None:
    """What a file holds, or None where it holds nothing of this kind; `instead` is what then happens, as one clause."""
    found = as_kind(disk.read_json(path), kind)
    if found is None and path.exists():
        tell(f"{path} is damaged: {instead}")
    return found


def as_kind(value: Any, kind: type[T]) -> T | None:
    """A JSON value as what it should be, or None."""
    try:
        return None if value is None else conversion.convert(value, kind)
    except msgspec.ValidationError:
        return None


def tell(sentence: str) -> None:
    """Say it once, however often what is damaged is met."""
    if sentence not in _told:
        _told.add(sentence)
        say(f"doubt: {sentence}")

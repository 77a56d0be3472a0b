"""Conversion of JSON values to our types: the only place that calls msgspec's converter.

msgspec 0.22 builds a type's description at its first use, without a lock: two threads that use a type first at the same
time end the process with SIGSEGV. Here each type is described under a lock before any thread converts to it.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_building = threading.Lock()
_built: set[Any] = set()


def convert(value: Any, kind: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """Return a plain value as `kind`. Raises msgspec.ValidationError if the value has another form."""
    _build(kind)
    return msgspec.convert(value, kind, strict=True, dec_hook=dec_hook)


def decode(text: str | bytes, kind: type[T]) -> T:
    """Return a JSON text as `kind`. Raises msgspec.DecodeError, of which ValidationError is one."""
    _build(kind)
    return msgspec.json.decode(text, type=kind)


def _build(kind: Any) -> None:
    """Let msgspec describe a type and every type that its fields have."""
    if kind in _built:
        return
    with _building:
        if kind not in _built:
            msgspec.json.Decoder(kind, dec_hook=lambda expected, given: given)
            _built.add(kind)

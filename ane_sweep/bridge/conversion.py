"""Conversion of JSON values to our types: the only place that calls msgspec's converter.

msgspec 0.22 builds a type's description at its first use, without a lock: two threads that use a type first at the same
time end the process with SIGSEGV. Here each type is described under a lock before any thread converts to it.
"""

import threading
from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")
_building = threading.Lock()
_built: set[type] = set()


def convert(value: object, kind: type[T], dec_hook: Callable[[type, str], object] | None = None) -> T:
    """Convert a JSON value to the type `kind`. Raises msgspec.ValidationError if the value has another form."""
    import msgspec

    _build(kind)
    return msgspec.convert(value, kind, strict=True, dec_hook=dec_hook)


def check(value: object, kind: type[T]) -> T:
    """Return `value` unchanged, typed as the TypedDict `kind`; keys that the type does not name stay, unlike with
    `convert`.

    Raises msgspec.ValidationError if a key that the type names has another form.
    """
    convert(value, kind)
    return cast(T, value)


def decode(text: str | bytes, kind: type[T]) -> T:
    """Parse a JSON text as the type `kind`. Raises msgspec.DecodeError (ValidationError is a subclass)."""
    import msgspec

    _build(kind)
    return msgspec.json.decode(text, type=kind)


def _build(kind: type) -> None:
    """Let msgspec describe a type and the types of its fields."""
    import msgspec  # not at the top: this module is imported where nothing is converted

    if kind in _built:
        return
    with _building:
        if kind not in _built:
            msgspec.json.Decoder(kind, dec_hook=lambda expected, given: given)
            _built.add(kind)

"""Temporary changes of other packages' attributes."""

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

_INHERITED = object()


@contextmanager
def replace_attributes(changes: Iterable[tuple[object, str, object]]) -> Iterator[None]:
    """Set each (owner, name, value) inside this context. Not thread-safe: a process converts one program at a time."""
    undo = []
    try:
        for owner, name, value in changes:
            undo.append((owner, name, vars(owner).get(name, _INHERITED)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(undo):
            if value is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def find_changes(
    patches: Iterable[tuple[str, str, str, Callable[..., object]]], *given: object
) -> Iterator[tuple[object, str, object]]:
    """Yield the changes of rows (module, its class or "", attribute, maker of the new value from the old one and `given`).

    An attribute that another release of the package lacks is left out.
    """
    for module, owner, name, make in patches:
        found: object = importlib.import_module(module)
        found = getattr(found, owner, None) if owner else found
        original = vars(found).get(name) if found is not None else None
        if original is not None:
            yield found, name, make(original, *given)

"""Changes of other packages' attributes that last as long as a context."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_INHERITED = object()


@contextmanager
def replace_attributes(changes: Iterable[tuple[object, str, object]]) -> Iterator[None]:
    """Set each (owner, name, value) while this is open. Not thread-safe: a process converts one program at a time."""
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

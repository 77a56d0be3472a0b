"""Records for other readers: secrets masked, control characters escaped."""

from collections.abc import Callable, Iterable

from ane_sweep.bridge.record import Record
from ane_sweep.outward import make_public, map_texts


def records(given: Iterable[Record], say: Callable[[str], str] = make_public) -> list[Record]:
    return [Record.from_dict(map_texts(record.to_dict(), say)) for record in given]

"""Records as others will read them: told, not obeyed."""

from collections.abc import Callable, Iterable

from ane_sweep.bridge.record import Record
from ane_sweep.outward import told, values


def records(given: Iterable[Record], say: Callable[[str], str] = told) -> list[Record]:
    return [Record.from_dict(values(record.to_dict(), say)) for record in given]

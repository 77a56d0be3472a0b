"""The head of a page: the sweep, its outcome, and the settings of every cell."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ane_sweep.bridge.record import Record, varying_axes
from ane_sweep.report import table
from ane_sweep.report.doubts import Doubt


def title(records: Sequence[Record]) -> str:
    """Return the models and the axes that vary: `minilm: variant, chunks, precision`."""
    axes = varying_axes(list(records))
    models = list(dict.fromkeys(str(record.cell.get("model", "-")) for record in records))
    named = ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")
    others = [axis for axis in axes if axis != "model"]
    return f"{named}: {', '.join(others)}" if others else named


def counts(records: Sequence[Record]) -> list[tuple[str, int]]:
    """Return (status, number of cells), in the order of the records."""
    return list(Counter(record.status.value for record in records).items())


def lines(records: Sequence[Record], changed: dict[str, Any]) -> list[str]:
    """Return the lines on the timing and on those settings of all cells that are not the default ones."""
    found = [line for line in table.list_head_lines(list(records)) if line.startswith("latency: ")]
    return [*found, f"all cells: {table.setting_words(changed)}"] if changed else found


def of_all(doubts: Sequence[Doubt], records: Sequence[Record]) -> list[Doubt]:
    """Return the warnings about the figures of every cell that has any: they stand once, above the figures."""
    timed = {n for n, record in enumerate(records) if record.value("latency_median_ms") is not None}
    return [doubt for doubt in doubts if timed and timed <= set(doubt.cells) and doubt.meaning]

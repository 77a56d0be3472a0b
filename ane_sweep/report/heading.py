"""What a page says before its first figure: what was swept, how it ended, what holds for every cell."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ane_sweep.bridge.record import Record, as_typed, flat_cell, varying_axes
from ane_sweep.planner import help
from ane_sweep.report import table
from ane_sweep.report.doubts import Doubt

NESTED = ("model_options.", "precision_options.", "limits.")  # follow from the option, or from the stage


def title(records: Sequence[Record]) -> str:
    """`minilm: variant, chunks, precision`: the models, and the axes that vary."""
    axes = varying_axes(list(records))
    models = list(dict.fromkeys(str(record.cell.get("model", "-")) for record in records))
    named = ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")
    others = [axis for axis in axes if axis != "model"]
    return f"{named}: {', '.join(others)}" if others else named


def counts(records: Sequence[Record]) -> list[tuple[str, int]]:
    """(status, cells), in the order of the records."""
    return list(Counter(record.status.value for record in records).items())


def settings(records: Sequence[Record]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what all cells share and no plain command would ask for, what they share and is as by default)."""
    flat, told = [flat_cell(record) for record in records], {"model", "family", "size", *varying_axes(list(records))}
    shared = {key: value for key, value in flat[0].items() if key not in told and not key.startswith(NESTED)}
    shared = {key: value for key, value in shared.items() if all(cell.get(key) == value for cell in flat)}
    usual = help.defaults()
    plain = {key: value for key, value in shared.items() if key in usual and usual[key] == value}
    return {key: value for key, value in shared.items() if key not in plain}, plain


def lines(records: Sequence[Record], changed: dict[str, Any]) -> list[str]:
    """What was timed on what, and the settings of all cells that are not the default ones."""
    found = [line for line in table.head_lines(list(records)) if line.startswith("latency: ")]
    return [*found, f"all cells: {said(changed)}"] if changed else found


def said(settings: dict[str, Any]) -> str:
    """`key=value` of each, as it is typed."""
    return " ".join(f"{as_typed(key)}={table.axis_text(value)}" for key, value in settings.items())


def of_all(doubts: Sequence[Doubt], records: Sequence[Record]) -> list[Doubt]:
    """The doubts about the figures of every cell that has any: they stand once, above the figures."""
    timed = {n for n, record in enumerate(records) if record.value("latency_median_ms") is not None}
    return [doubt for doubt in doubts if timed and timed <= set(doubt.cells) and doubt.meaning]

"""Names of runs: the axes of a sweep or a cell in words, written so that names sort as the values do."""

import json
import re
from collections.abc import Iterable
from datetime import datetime

from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.record import Record, Status, flat_cell

KEY_LIMIT = 250  # MLflow refuses longer ones
DOUBTED = (Status.DEGRADED, Status.FALLBACK)  # these have figures, and so points in charts
_MODELS = 3  # named one by one


def cell_name(record: Record, axes: list[str], widths: dict[str, int] | None = None) -> str:
    """Return a cell's name, `minilm split_einsum chunks=2`, with a question mark if its figures have warnings,
    [stand-in] if no Mac took part. Further facts are tags, as the legend of MLflow's charts has room for few and short
    names.

    widths   the widths of axes with numeric values (`digits`), which are padded: chunks=02 sorts before chunks=10
    """
    marks = " ?" * (record.status in DOUBTED) + " [stand-in]" * bool(record.host.get("stand_in"))
    return words(record, axes, widths or {})[: KEY_LIMIT - len(marks)] + marks


def words(record: Record, axes: list[str], widths: dict[str, int]) -> str:
    cell = flat_cell(record)
    found = [str(cell.get("model", "cell"))]
    for axis in axes:
        value = cell.get(axis)
        if axis != "model" and value is not None:
            shown = str(value).zfill(widths.get(axis, 0)) if _as_whole_number(value) else text(value, 40)
            found.append(value if isinstance(value, str) else f"{axis}={shown}")
    return " ".join(found)


def digits(records: Iterable[Record], axes: list[str]) -> dict[str, int]:
    """Return {axis: digits of its largest value} of the axes with whole numbers as values."""
    cells = [flat_cell(record) for record in records]
    values = {axis: [cell[axis] for cell in cells if _as_whole_number(cell.get(axis))] for axis in axes}
    return {axis: max(len(str(value)) for value in found) for axis, found in values.items() if found}


def sweep_name(records: list[Record], axes: list[str], started: object) -> str:
    """Return a sweep's name, `minilm x variant, chunks (4) 2026-11-22 07:08`, so that sweeps of one content sort
    together, by time.

    started   the time in run.json, or None: then the sweep's stamp is used
    """
    models = list(dict.fromkeys(str(record.cell.get("model", "cell")) for record in records))
    what = ", ".join(models) if len(models) <= _MODELS else f"{len(models)} models"
    varied = ", ".join(axis for axis in axes if axis != "model")
    scripted = " [stand-in]" if any(record.host.get("stand_in") for record in records) else ""
    moment = _moment(started) or (records[0].sweep if records else "")
    return f"{what}{' x ' if varied else ''}{varied} ({len(records)}) {moment}{scripted}"[:KEY_LIMIT]


def _moment(started: object) -> str | None:
    """Return a time to the minute, by the clock of the sweep's host, or None for no time."""
    try:
        return datetime.fromisoformat(str(started)).strftime("%Y-%m-%d %H:%M")
    except (TypeError, ValueError):
        return None


def _as_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def key(name: str) -> str:
    """Return a name that MLflow accepts; slashes, which MLflow refuses or uses for sections, become `_`."""
    return re.sub(r"[^\w.\-: ]", "_", name)[:KEY_LIMIT].strip(". ") or "_"


def text(value: object, limit: int) -> str:
    said = format_value(value) if isinstance(value, (str, list)) else json.dumps(value, ensure_ascii=False, default=str)
    return said if len(said) <= limit else said[: limit - 4] + " ..."

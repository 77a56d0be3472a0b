"""Published, predicted, planned and measured figures of the same request, side by side."""

from typing import Any

from ane_sweep.bridge.figures import Ops
from ane_sweep.bridge.record import Record
from ane_sweep.placement import chips
from ane_sweep.report.table import row_labels
from ane_sweep.report.views import Cells
from ane_sweep.results import published

HEADS = (
    "published by", "on", "ours", "ms published", "ms estimated", "ms measured", "ANE % published", "ANE % predicted",
    "ANE % planned", "ops published", "ops ours", "PSNR published", "PSNR measured", "note",
)  # fmt: skip
NOTE = (
    "Figures that others published of the same model, form, number of chunks and compute units; where a source states "
    "no length or no units, any stand beside it. Ours of ops is the number in our converted program, with its "
    "ratio to theirs. Estimates and predictions are for the "
    "published chip where this sweep asked for it (chips=[...]), else for one of its family, named. What was measured "
    "here was measured on this host; see Provenance. Not estimated: a chip without figures of its own for the units that "
    "the program would run on; the record's `placement` says which."
)


def rows(cells: Cells) -> list[list[str]]:
    """A row per published figure that some record matches, in the order of the published file."""
    found, alike = [], dict[tuple[Any, ...], int]()
    for n, record in enumerate(cells.records):
        alike.setdefault(published.told_by(record, cells.flat[n]), n)
    for row in published.rows():
        found_in = next((n for n in alike.values() if row.matches(cells.records[n], cells.flat[n])), None)
        if found_in is not None and row.figures:
            found.append(_line(row, cells.records[found_in], cells.names[found_in]))
    return found


def _line(row: published.Row, record: Record, label: str) -> list[str]:
    batch = f"batch {row['batch']}" if row["batch"] not in ("", "1") else ""
    where = ", ".join(text for text in (row["device"], row["compute_units"].lower(), row["os_target"], batch) if text)
    marks = row_labels(record)
    model = str(record.cell["model"])
    label = label if model in label.split() else f"{model} {label}"
    ours = f"{label}, {record.realised.get('runtime') or record.status.value}" + "".join(f" [{mark}]" for mark in marks)
    chip, entries = _chip(row["chip"], record)
    said = "" if chip in ("", row["chip"]) else f" ({chip})"
    psnr = None if "weights=random" in marks else record.value("psnr_db")
    part = row["chunk_index"]  # a figure of one chunk: no whole program's latency stands beside it
    measured = None if part else record.value("latency_median_ms")
    estimate = "-" if part else _estimate(record, chip)
    where += f", chunk {part}" if part else ""
    return [
        row["source"], where or "-", ours, _text(row.figures.get("predict_ms")),
        estimate + (said if estimate != "-" else ""), _text(measured),
        _text(_published_share(row.figures)), _text(_share(entries.get("predicted"))) + (said if "predicted" in entries else ""),
        _text(_share(entries.get("planned"))), *_counts(row, record), _text(row.figures.get("psnr_db")), _text(psnr), row["notes"],
    ]  # fmt: skip


def _chip(wanted: str, record: Record) -> tuple[str, dict[str, Ops]]:
    """The record's chip nearest to the wanted one (itself, one of its family, none), and its ops by kind of figure."""
    table = chips.table()
    known = list(dict.fromkeys(entry.chip for entry in record.placed("predicted") if entry.chip))
    family = table[wanted].family if wanted in table else None
    kin = [name for name in known if name in table and table[name].family == family]
    chip = wanted if wanted in known else kin[0] if kin else ""
    ops = {str(entry.kind): entry.ops for entry in record.placement if entry.kind == "planned" or entry.chip == chip}
    return chip, ops


def _estimate(record: Record, chip: str) -> str:
    if any(entry.chip == chip and entry.not_estimated for entry in record.placement):
        return "not estimated"
    return _text(record.value("latency_ms", "estimated", chip) if chip else None)


def _counts(row: published.Row, record: Record) -> tuple[str, str]:
    """(ops published, ops ours with the ratio), of the whole program or of the chunk that the figure is of."""
    units = [row.figures[name] for name in ("ops_cpu", "ops_gpu", "ops_ane") if name in row.figures]
    theirs = row.figures.get("ops_total") or sum(units)
    entry = next(iter(record.placed("predicted")), None)
    if not theirs or entry is None:
        return _text(theirs or None), "-"
    part = row["chunk_index"]
    parts = [one.ops.total for one in entry.chunks if one.chunk is not None]
    if part and not (part.isdigit() and int(part) <= len(parts)):
        return _text(theirs), "-"
    ours = parts[int(part) - 1] if part else entry.ops.total
    return f"{theirs:g}", f"{ours} ({ours / theirs:.2f})"


def _published_share(figures: dict[str, float]) -> float | None:
    """Percent of the ops on the ANE; None where not all counts are known."""
    if "ops_ane" not in figures:
        return None
    total = figures.get("ops_total") or sum(figures.get(f"ops_{unit}", 0) for unit in ("cpu", "gpu", "ane"))
    return 100.0 * figures["ops_ane"] / total if total else None


def _share(ops: Ops | None) -> float | None:
    return 100.0 * ops.share("ane") if ops and ops.total else None


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"

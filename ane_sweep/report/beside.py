"""Published, predicted, planned and measured figures of the same request, side by side."""

from ane_sweep.bridge.record import Record
from ane_sweep.placement import chips
from ane_sweep.placement.types import Ops
from ane_sweep.report.blocks import Grid, Para, Section, figure_text
from ane_sweep.report.table import list_row_labels
from ane_sweep.report.views import Cells
from ane_sweep.results import published
from ane_sweep.results.headline import estimate, is_check, measured_ms, shipped_placement

HEADS = (
    "published by", "on", "ours", "ms published", "ms estimated", "ms measured", "load ms published", "load ms measured",
    "compile ms published", "compile ms measured", "ANE % published", "ANE % predicted", "ANE % planned",
    "ops published", "ops ours", "PSNR published", "PSNR measured", "MB published", "MB ours", "note",
)  # fmt: skip
WORDS = ("published by", "on", "ours", "note")  # the columns of words; the others are figures, "-" where there is none
NOTE = (
    "Figures that others published of the same model, form, number of chunks and compute units; where a source states "
    "no length or no units, any stand beside it. A column without a figure is left out. Ours of ops is the number in "
    "our converted program, with its ratio to theirs. Estimates and predictions are for the published chip where this "
    "sweep asked for it (chips=[...]), else for one of its family, named. What was measured here was measured on this "
    "host; see Provenance. Not estimated: a chip without figures of its own for the units that the program would run "
    "on; the record's `placement` says which."
)


def section(cells: Cells) -> Section | None:
    """Return the section "Published beside ours", or None if no published figure matches."""
    found = grid(cells)
    return None if found is None else Section("Published beside ours", [Para(NOTE), found])


def grid(cells: Cells) -> Grid | None:
    """Return the table without empty columns, or None if no published figure matches."""
    if not (found := rows(cells)):
        return None
    kept = [n for n, head in enumerate(HEADS) if head in WORDS or any(row[n] != "-" for row in found)]
    heads = [HEADS[n] for n in kept]
    return Grid(heads, [[row[n] for n in kept] for row in found], [head not in WORDS for head in heads])


def rows(cells: Cells) -> list[list[str]]:
    """Return a row (columns of HEADS) for each published row that some record matches, in the published file's order."""
    found, alike = [], dict[tuple[str | None, ...], int]()
    for n, record in enumerate(cells.records):
        alike.setdefault(published.matching_key(cells.flat[n], record.realised.get("runtime")), n)
    for row in published.rows():
        first = next((n for (*_, runtime), n in alike.items() if row.matches(cells.flat[n], runtime)), None)
        if first is not None and row.figures:
            line = _row_texts(row, cells.records[first], cells.names[first])
            found.append([line.get(head) or ("" if head in WORDS else "-") for head in HEADS])
    return found


def _row_texts(row: published.Row, record: Record, label: str) -> dict[str, str]:
    """Return the texts of one row by column; a column without a figure is absent or empty."""
    part = row["chunk_index"]  # a figure of one chunk: no figure of the whole program stands beside it
    chip, entries = _chip(row["chip"], record)
    other = "" if chip in ("", row["chip"]) else f" ({chip})"
    guess = estimate(record, chip) if chip and not part else None
    ours = f"{guess.ms:.4g}" if guess else ""
    if not part and any(entry.chip == chip and entry.not_estimated for entry in record.placement):
        ours = "not estimated"
    units, total = _published_ops(row)
    ops_published, ops_ours = _counts(row, record)
    batch = f"batch {row['batch']}" if row["batch"] not in ("", "1") else ""
    stated = (row["device"], row["compute_units"].lower(), row["os_target"], batch, part and f"chunk {part}")
    model = str(record.cell["model"])
    named = label if model in label.split() else f"{model} {label}"
    marks = "".join(f" [{mark}]" for mark in list_row_labels(record))
    return {
        "published by": row["source"],
        "on": ", ".join(filter(None, stated)) or "-",
        "ours": f"{named}, {record.realised.get('runtime') or record.status.value}{marks}",
        **{head: published.figure_text(row.figures[name]) for name, head in _PUBLISHED.items() if name in row.figures},
        **({} if part else _measured_texts(record)),
        "ms estimated": ours and ours + other,
        "ANE % published": figure_text(100 * units["ane"] / total) if "ane" in units and total else "-",
        "ANE % predicted": _share(entries.get("predicted")) + (other if "predicted" in entries else ""),
        "ANE % planned": _share(entries.get("planned")),
        "ops published": ops_published,
        "ops ours": ops_ours,
        "note": row["notes"],
    }


_PUBLISHED = {
    "predict_ms": "ms published",
    "load_ms": "load ms published",
    "compile_ms": "compile ms published",
    "psnr_db": "PSNR published",
    "size_mb": "MB published",
}


def _measured_texts(record: Record) -> dict[str, str]:
    """Return this host's figures of the whole program by column; no PSNR for random weights, no time of a check."""
    seconds, size = record.value("compile_s"), record.value("package_bytes")
    loads = {word: record.value(f"load_{word}_ms") for word in ("cold", "cached")}
    apart = [f"{ms:.4g} {word}" for word, ms in loads.items() if ms is not None]  # else the one load before the timing
    random, checked = "weights=random" in list_row_labels(record), is_check(record)
    return {
        "ms measured": "" if checked else figure_text(measured_ms(record)),
        "load ms measured": ", ".join(apart) or ("" if checked else figure_text(record.value("load_ms"))),
        "compile ms measured": figure_text(None if seconds is None else 1000 * seconds),
        "PSNR measured": "" if random else figure_text(record.value("psnr_db")),
        "MB ours": figure_text(None if size is None else size / 1e6),
    }


def _chip(wanted: str, record: Record) -> tuple[str, dict[str, Ops]]:
    """Return the record's chip nearest to the wanted one (itself, one of its family, or none), and its ops by kind of figure."""
    table = chips.table()
    known = list(dict.fromkeys(entry.chip for entry in record.placed("predicted") if entry.chip))
    family = table[wanted].family if wanted in table else None
    kin = [name for name in known if name in table and table[name].family == family]
    chip = wanted if wanted in known else kin[0] if kin else ""
    ops = {str(entry.kind): entry.ops for entry in record.placement if entry.kind == "planned" or entry.chip == chip}
    return chip, ops


def _counts(row: published.Row, record: Record) -> tuple[str, str]:
    """Return (published ops, by unit if known; our ops with the ratio), for the whole program or the row's chunk."""
    units, theirs = _published_ops(row)
    if not theirs:
        return "", ""
    split = ", ".join(f"{published.figure_text(ops)} {unit.upper()}" for unit, ops in units.items())
    text = published.figure_text(theirs) + (f" ({split})" if split else "")
    entry = shipped_placement(record)
    if entry is None:
        return text, ""
    part = row["chunk_index"]
    parts = [one.ops.total for one in entry.chunks if one.chunk is not None]
    if part and not (part.isdigit() and int(part) <= len(parts)):
        return text, ""
    ours = parts[int(part) - 1] if part else entry.ops.total
    return text, f"{ours} ({ours / theirs:.2f})"


def _published_ops(row: published.Row) -> tuple[dict[str, float], float]:
    """Return the published ops by unit, and of all units."""
    units = {unit: row.figures[f"ops_{unit}"] for unit in ("cpu", "gpu", "ane") if f"ops_{unit}" in row.figures}
    return units, row.figures.get("ops_total") or sum(units.values())


def _share(ops: Ops | None) -> str:
    return f"{100 * ops.share('ane'):.4g}" if ops and ops.total else ""

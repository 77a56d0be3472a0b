"""Rows for published/latency.csv that somebody sends: their check, and their reading from a bundle of a run."""

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from ane_sweep.bridge.cell import DECLARED
from ane_sweep.bridge.record import Record, flat_cell
from ane_sweep.bundles import bundle
from ane_sweep.machine import host
from ane_sweep.placement import chips, latency
from ane_sweep.planner import options
from tests.proof.placement import nets

TEMPLATE = ("table", "chip", "compute_units", "chunks", "net", "published_ms", "note", "aside")
ENCODERS = ("bert", "distilbert", "roberta")
FORMS = ("original", "split_einsum")
READ = (
    "variant",
    "precision",
    "chunks",
    "seq_len",
    "batch",
    "weights",
    "compute_units",
    "target",
    "runtime",
    "model",
    "size",
    "seed",
)
_WIDTHS = {"width": ("hidden_size", "dim"), "layers": ("num_hidden_layers", "n_layers"), "heads": ("num_attention_heads", "n_heads"),
           "ffn": ("intermediate_size", "hidden_dim")}  # fmt: skip


def check_rows(path: Path) -> list[str]:
    """Return one sentence for each thing that is wrong with a file of rows for latency.csv."""
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != TEMPLATE:
            return [f"{path}: its columns must be {','.join(TEMPLATE)}"]
        return [f"{path}, line {line}: {wrong}" for line, row in enumerate(reader, 2) for wrong in _find_faults(row)]


def _find_faults(row: dict[str, str]) -> list[str]:
    faults = [f"{name} is empty" for name in TEMPLATE[:6] if not row[name]]
    if row["chip"] not in chips.published():
        faults.append(f"chip={row['chip']} is unknown; `ane-sweep devices` lists the chips")
    if row["compute_units"] not in latency.UNIT_OF:
        faults.append(f"compute_units={row['compute_units']} is unknown; choices: {', '.join(latency.UNIT_OF)}")
    try:
        if not (int(row["chunks"]) >= 1 and 0 < float(row["published_ms"]) < math.inf):
            faults.append("chunks and published_ms must be positive")
    except ValueError:
        faults.append("chunks must be an integer and published_ms a number")
    try:
        nets.sites(row["net"])
    except (LookupError, TypeError, ValueError) as error:
        faults.append(f"net={row['net']} cannot be written by nets.py ({error})")
    return faults


def read_bundle(path: Path, table: str) -> tuple[list[dict[str, str]], list[str]]:
    """Return the rows of a bundle's cells, and a sentence for each cell that gives none. Raises StoreError."""
    rows, left_out = [], []
    for number, record in enumerate(bundle.read(path).records, 1):
        if why := _explain_left_out(record):
            left_out.append(f"cell {number} ({record.cell.get('model')}) gives no row: {why}")
            continue
        values = (
            table, host.chip_name(str(record.host["chip"])), str(record.cell["compute_units"]), str(record.cell["chunks"]),
            _write_net(record), f"{record.value('latency_median_ms'):.6g}", str(record.host.get("os_version") or ""), "",
        )  # fmt: skip
        rows.append(dict(zip(TEMPLATE, values, strict=True)))
    return rows, left_out


def _explain_left_out(record: Record) -> str | None:
    """Return why a cell's latency is no row: not measured by Core ML on a chip, or of a net that is not read from records."""
    flat, chip = flat_cell(record), record.host.get("chip")
    changed = [name for name, axis in DECLARED.items() if axis.enters and flat.get(name, axis.plain) != axis.plain]
    by_hand = [name for name in changed if name not in READ]
    reasons = (
        ("stand_in" in record.host, "it comes from a stand-in, not from a Mac"),
        (record.status.value != "ok", f"its status is {record.status.value}"),
        (record.realised.get("runtime") != "coreml", "Core ML did not run it"),
        (host.chip_name(str(chip)) not in chips.published(), f"chip {chip} is unknown"),
        (not record.value("latency_median_ms"), "no latency was measured"),
        (flat.get("compute_units") == "all", "compute_units=all does not say which unit ran it"),
        (flat.get("family") not in ENCODERS, f"family={flat.get('family')}: write it by hand; read are {', '.join(ENCODERS)}"),
        (flat.get("variant") not in FORMS, f"variant={flat.get('variant')}: write it by hand"),
        (flat.get("precision") != "fp16", f"precision={flat.get('precision')}: write it by hand"),
        (bool(by_hand), f"{', '.join(by_hand)} differ from the default: write it by hand"),
        (not isinstance(record.cell.get("chunks"), int), "the number of its chunks is not in the request"),
        (None in _read_sizes(record).values(), "its sizes are not in the record"),
    )  # fmt: skip
    return next((why for applies, why in reasons if applies), None)


def _read_sizes(record: Record) -> dict[str, object]:
    arch = _read_arch(record)
    return {name: next((arch[key] for key in keys if key in arch), None) for name, keys in _WIDTHS.items()}


def _read_arch(record: Record) -> Mapping[str, object]:
    """Return the architecture of the shipped model, with what the cell changes of it."""
    try:
        shipped = options.shipped("model", str(record.cell["model"])).get("arch")
    except KeyError:
        shipped = None
    changed = (record.cell.get("model_options") or {}).get("arch") or {}
    return {**(shipped if isinstance(shipped, dict) else {}), **changed}


def _write_net(record: Record) -> str:
    flat = flat_cell(record)
    words = {
        "form": flat["variant"],
        "batch": flat.get("batch") or 1,
        "tokens": flat["seq_len"],
        **_read_sizes(record),
        "mask": "input",
    }
    vocabulary = _read_arch(record).get("vocab_size")
    return " ".join(
        [
            "transformer",
            *(f"{name}={value}" for name, value in words.items()),
            *([f"vocab={vocabulary}"] if vocabulary else []),
        ]
    )

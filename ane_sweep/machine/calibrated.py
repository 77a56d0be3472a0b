"""Figures that `ane-sweep calibrate run` measured on this machine: rows of `calibration.csv` in the user's data folder.

They are used if the chip table has no measurement of a chip, and never for another chip. A row:

    chip,units,quantity,value,unit,kind,source,probe,os_build,taken

units     the units that Core ML might use: cpu_and_ne, cpu_only, cpu_and_gpu, all
quantity  dispatch_ms, fp16_tflops, weight_gbs, ...: ane_sweep/calibration/probes.csv has them all
kind      measured, or planned (read from Core ML's plan)
source    `this machine`, or the label of a stand-in (a simulated Mac), whose rows count only while it is active
"""

import csv
import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from ane_sweep import folders
from ane_sweep.bridge import disk
from ane_sweep.csv_files import read_csv
from ane_sweep.errors import StoreError
from ane_sweep.machine import stand_in
from ane_sweep.placement.chips import Measurement

NAME, KIND, SOURCE = "calibration.csv", "measured", "this machine"


@dataclass(frozen=True)
class Row:
    chip: str
    units: str
    quantity: str
    value: float
    unit: str
    kind: str
    source: str
    probe: str
    os_build: str
    taken: str


COLUMNS = tuple(field.name for field in fields(Row))


def path() -> Path:
    return folders.data_folder() / NAME


def source() -> str:
    """Return the `source` for new rows: this machine, or the label of the active stand-in."""
    script = stand_in.active()
    return SOURCE if script is None else f"stand-in {script.label()}"


def rows() -> list[Row]:
    """Return all stored rows, an empty list if nothing was measured. Raises StoreError for a damaged file."""
    where = path()
    try:
        return [_row(where, number, found) for number, found in enumerate(read_csv(where), 2)]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StoreError(
            f"{where}: cannot be read ({error}); delete it, and measure again: ane-sweep calibrate run"
        ) from None


def _row(where: Path, number: int, found: dict[str, str]) -> Row:
    try:
        row = Row(**{**{name: found[name] or "" for name in COLUMNS}, "value": float(found["value"])})  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError):
        row = None
    if row is None or not math.isfinite(row.value):
        raise StoreError(f"{where}, line {number}: expected {','.join(COLUMNS)}; mend that line or delete the file")
    return row


def keep(made: Sequence[Row]) -> Path:
    """Store rows, replacing those of the same chip, units, quantity and source; return the file. Raises StoreError."""
    new = {(row.chip, row.units, row.quantity, row.source): row for row in made}
    merged = {(row.chip, row.units, row.quantity, row.source): row for row in rows()} | new
    where = path()
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        with disk.replace_file(where) as aside, open(aside, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) for row in merged.values())
    except OSError as error:
        raise StoreError(f"{where}: cannot be written ({error.strerror or error})") from None
    return where


def find_measurements(chip: str) -> list[Measurement]:
    """Return the measurements of a chip taken on this machine, or by the active stand-in, in the form for `chips.get`."""
    rows = _rows_of(chip)
    return [Measurement(row.units, row.quantity, row.value) for row in rows if row.kind == KIND and row.value > 0]


def _rows_of(chip: str) -> list[Row]:
    return [row for row in rows() if row.chip == chip and row.source == source()]


def digest(chips: Sequence[str]) -> str | None:
    """Return a digest of the local measurements that estimates for these chips use, or None without any (the usual case)."""
    found = [asdict(row) for chip in sorted(chips) for row in _rows_of(chip)]
    return hashlib.sha256(repr(found).encode()).hexdigest() if found else None

"""The chips that predictions exist for: data/chips.json, with the sources of every row."""

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ane_sweep.errors import ConfigError, nearest, suggestion
from ane_sweep.placement import here

DATA = Path(__file__).parent / "data" / "chips.json"
CALIBRATED = "H16"  # the family that rules and estimates were checked on (M4)


@dataclass(frozen=True)
class Chip:
    """One row of the chip table. Rates: TFLOP/s and GB/s that a Core ML program reaches on the chip's ANE; None if unmeasured.

    resident_bytes  weights up to this many bytes are not streamed anew at each call, as far as published figures show
    """

    chip: str
    family: str
    ane_cores: int
    tops: float | None
    fp16_tflops: float
    weight_gbs: float
    dram_gbs: float
    dispatch_ms: float
    mapped_limit_bytes: int | None
    axis_limit: int
    ios: bool
    basis: str
    sources: tuple[str, ...]
    confidence: str
    resident_bytes: int = 0

    @property
    def generation(self) -> int:
        return int(self.family[1:])

    @property
    def is_calibrated(self) -> bool:
        return self.family == CALIBRATED


@cache
def _content() -> dict[str, Any]:
    return json.loads(DATA.read_text(encoding="utf-8"))


def table() -> dict[str, Chip]:
    """Return every chip by name, oldest family first. Rates measured on this machine replace rates that are not measurements."""
    return {name: _with_measured(chip) for name, chip in published().items()}


@cache
def published() -> dict[str, Chip]:
    """Return every chip by name with the values of the file."""
    return {row["chip"]: Chip(**{**row, "sources": tuple(row["sources"])}) for row in _content()["chips"]}


def _with_measured(chip: Chip) -> Chip:
    rates: dict[str, Any] = {} if chip.confidence == here.KIND else here.rates(chip.chip)
    if not rates:
        return chip
    words = ", ".join(sorted(rates))
    return replace(
        chip, **rates, basis=f"{words}: measured here (ane-sweep calibrate); else {chip.basis}", sources=(*chip.sources, "HERE")
    )  # fmt: skip


def sources() -> dict[str, str]:
    return {**_content()["sources"], "HERE": "measured on this machine by `ane-sweep calibrate run`"}


def devices() -> dict[str, list[str]]:
    """Return the names of phones, tablets and Macs by the chip that they stand for."""
    found: dict[str, list[str]] = _content()["devices"]
    return found


def canonical(name: str) -> str:
    """Return a chip's own name ("iPhone 15 Pro" -> "a17_pro", "M4-Max" -> "m4_max"); an unknown name stays unchanged."""
    return _names().get(_plain(name), name)


@cache
def _names() -> dict[str, str]:
    """Return each chip by its own name and by those of its devices, as `_plain` spells them."""
    named = {_plain(device): chip for chip, names in devices().items() for device in names}
    return named | {_plain(chip): chip for chip in published()}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def get(name: str) -> Chip:
    """Return the chip with a name, or of a device ("m4", "a17_pro", "iphone15_pro"); dashes, spaces and capitals do not matter.

    Raises ConfigError for an unknown name.
    """
    if (wanted := canonical(name)) in published():
        return _with_measured(published()[wanted])
    known = [*published(), *(device for names in devices().values() for device in names)]
    raise ConfigError(
        f"chip={name}: unknown{suggestion(name, known)}; known: {nearest(name, known, 'ane-sweep devices')}. "
        f"A new one is a row in ane_sweep/placement/data/{DATA.name}"
    )

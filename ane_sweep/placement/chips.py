"""The chips that are predicted for: data/chips.json, with the sources of every row."""

import json
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
    """One row. Rates: TFLOP/s and GB/s that a Core ML program reaches on its ANE; None where nobody has measured.

    resident_bytes  weights up to so many are not streamed anew at each call, as far as somebody has seen
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
    """Every chip by name, oldest family first; where a row's rates are no measurement, those measured on this machine."""
    return {name: _with_measured(chip) for name, chip in published().items()}


@cache
def published() -> dict[str, Chip]:
    """Every chip as the file has it."""
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


def get(name: str) -> Chip:
    """A chip by name ("m4", "m4_max", "a17_pro"; dashes, spaces and capitals are forgiven). Raises ConfigError."""
    wanted = str(name).strip().lower().replace("-", "_").replace(" ", "_")
    if wanted in published():
        return _with_measured(published()[wanted])
    raise ConfigError(
        f"chip={name}: unknown{suggestion(name, published())}; known: {nearest(name, published(), 'ane-sweep devices')}. "
        f"A new one is a row in ane_sweep/placement/data/{DATA.name}"
    )

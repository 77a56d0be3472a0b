"""The chips that predictions support: data/chips.json, with the sources of every row."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from ane_sweep.errors import ConfigError, nearest, suggestion

DATA = Path(__file__).parent / "data" / "chips.json"
CALIBRATED = "H16"  # the family that rules and estimates were checked on (M4)
_RATES = ("dispatch_ms", "fp16_tflops", "weight_gbs")


@dataclass(frozen=True)
class Measurement:
    """A measured quantity of a chip (dispatch_ms, fp16_tflops ...) with the compute units that were allowed (cpu_and_ne ...)."""

    units: str
    quantity: str
    value: float


Measurements = Callable[[str], Sequence[Measurement]]  # the caller's own measurements of a chip, by its name


@dataclass(frozen=True)
class Chip:
    """One row of the chip table. Rates: TFLOP/s and GB/s that a Core ML program reaches on the chip's ANE; None if unmeasured.

    resident_bytes  weights up to this many bytes stay on the chip between calls, according to published figures
    ane_tflops      the rate of whole programs on the Neural Engine, for a chip without fitted latencies (latency.json)
    measured        the caller's own measurements: see `get`
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
    ane_tflops: float | None = None
    measured: tuple[Measurement, ...] = field(default=(), compare=False)

    @property
    def generation(self) -> int:
        return int(re.sub(r"\D", "", self.family))  # H18G is an H18

    @property
    def is_calibrated(self) -> bool:
        return self.family == CALIBRATED

    def to_dict(self) -> dict[str, object]:
        """Return the row of the chip table, in which measured rates replace others."""
        row = {name: value for name, value in asdict(self).items() if name != "measured"}
        return {name: value for name, value in row.items() if (name, value) != ("ane_tflops", None)}


class _Table(TypedDict):
    """The content of data/chips.json; a row has the fields of `Chip`."""

    chips: list[dict[str, Any]]
    sources: dict[str, str]
    devices: dict[str, list[str]]


@cache
def _content() -> _Table:
    content: _Table = json.loads(DATA.read_text(encoding="utf-8"))
    return content


def table(measured: Measurements | None = None) -> dict[str, Chip]:
    """Return every chip by name, oldest family first; for `measured` see `get`."""
    return {name: _with_measured(chip, measured) for name, chip in published().items()}


@cache
def published() -> dict[str, Chip]:
    """Return every chip by name with the values of the file."""
    return {row["chip"]: Chip(**{**row, "sources": tuple(row["sources"])}) for row in _content()["chips"]}


def _with_measured(chip: Chip, measured: Measurements | None) -> Chip:
    """Return a chip with measurements added; measured Neural Engine rates replace rates that were not measured."""
    found = tuple(measured(chip.chip)) if measured is not None else ()
    rates: dict[str, Any] = {
        one.quantity: one.value for one in found if one.units == "cpu_and_ne" and one.quantity in _RATES
    }
    chip = replace(chip, measured=found)
    if chip.confidence == "measured" or not rates:
        return chip
    basis = f"{', '.join(sorted(rates))}: measured here (ane-sweep calibrate); else {chip.basis}"
    return replace(chip, **rates, basis=basis, sources=(*chip.sources, "HERE"))


def sources() -> dict[str, str]:
    return {**_content()["sources"], "HERE": "measured on this machine by `ane-sweep calibrate run`"}


def devices() -> dict[str, list[str]]:
    """Return {chip: names of the phones, tablets and Macs that have it}."""
    return _content()["devices"]


def canonical(name: str) -> str:
    """Return the table's name of a chip ("iPhone 15 Pro" -> "a17_pro", "M4-Max" -> "m4_max"); an unknown name stays unchanged."""
    return _names().get(_plain(name), name)


@cache
def _names() -> dict[str, str]:
    """Return each chip by its own name and by those of its devices, as `_plain` spells them."""
    named = {_plain(device): chip for chip, names in devices().items() for device in names}
    return named | {_plain(chip): chip for chip in published()}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def get(name: str, measured: Measurements | None = None) -> Chip:
    """Return a chip by its name or that of a device ("m4", "a17_pro", "iphone15_pro"); dashes, spaces and capitals do
    not matter.

    `measured` gives the caller's own measurements of a chip: estimates use them if there is no published figure. Raises
    ConfigError for an unknown name.
    """
    if (wanted := canonical(name)) in published():
        return _with_measured(published()[wanted], measured)
    known = [*published(), *(device for names in devices().values() for device in names)]
    raise ConfigError(
        f"chip={name}: unknown{suggestion(name, known)}; known: {nearest(name, known, 'ane-sweep devices')}"
    )

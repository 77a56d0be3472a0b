"""The chips that are predicted for: data/chips.json, with the sources of every row."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ane_sweep.bridge.key import nearest, suggestion
from ane_sweep.errors import ConfigError

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


@cache
def table() -> dict[str, Chip]:
    """Every chip by name, oldest family first."""
    return {row["chip"]: Chip(**{**row, "sources": tuple(row["sources"])}) for row in _content()["chips"]}


def sources() -> dict[str, str]:
    return dict(_content()["sources"])


def get(name: str) -> Chip:
    """A chip by name ("m4", "m4_max", "a17_pro"; dashes, spaces and capitals are forgiven). Raises ConfigError."""
    wanted = str(name).strip().lower().replace("-", "_").replace(" ", "_")
    if wanted in table():
        return table()[wanted]
    raise ConfigError(
        f"chip={name}: unknown{suggestion(name, table())}; known: {nearest(name, table(), 'ane-sweep devices')}. "
        f"A new one is a row in ane_sweep/placement/data/{DATA.name}"
    )

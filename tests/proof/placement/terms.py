"""The terms of the latency estimate, fitted to published tables, and what they say of tables that had no part in it.

A row is a published latency of a net that nets.py writes. Left out in turn is a row's whole table; where nothing else is published
of its chip's unit (of a Neural Engine: its family), the table's other nets of that chip stay, and the row's own goes.
"""

import csv
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep.placement import chips, latency, work
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.latency import Terms
from tests.proof.placement import nets

FILE = Path(__file__).parents[3] / "ane_sweep" / "placement" / "data" / "published" / "latency.csv"
HOLDS = 0.9
_CHUNK_MS, _NOTCH = 1.6, 2.9  # ane-book's 11 to 4 chunks; 45 to 60 GB/s against 17 to 19 (stablehlo-coreml#110)
# Where a fit starts, and what it is drawn to where no row speaks: TFLOP/s, GB/s, microseconds, factors; shares of the rate
# at which weights are read (24 of some 60 GB/s of a large relu, Bryngelson).
_START: dict[str, dict[str, Any]] = {
    "ane": {
        "tflops": {"H13": 8.0, "H14": 8.0, "H15": 9.0, "H16": 12.0, "H17": 14.0},
        "spill_share": 0.4, "moved_gbs": 120.0, "heads_share": 0.8, "wide_io_gbs": 8.0, "task_us": 2.0,
    },
    "gpu": {
        "tflops": {"m1_max": 6.0, "m2": 1.2, "m4_pro": 6.5, "m5_max": 38.0},
        "op_us": 5.0, "head_factor": 2.0, "flop_per_byte": 60.0, "dispatch_ms": 0.3,
    },
    "cpu": {
        "tflops": {"m1_max": 0.4}, "weight_gbs": {"m1_max": 40.0}, "heads_gbs": {"m1_max": 1.0}, "wide_io_gbs": {"m1_max": 8.0},
        "op_us": {"m1_max": 5.0},
    },
}  # fmt: skip
_DRAWN = 0.1
PROBE = (
    "transformer tokens=128 width=384 layers=6 heads=4 ffn=1536 mask=input"  # the encoder of conf/sweep/calibrate.yaml
)
_ROBUST = 0.2


@dataclass(frozen=True)
class Row:
    """A published latency. `aside`: why it is no row of these terms (what ran was not this program on that unit)."""

    table: str
    chip: Chip
    compute_units: str
    chunks: int
    net: str
    ms: float
    note: str
    aside: str

    @property
    def unit(self) -> str:
        return latency.UNIT_OF[self.compute_units]

    @property
    def own(self) -> str:
        """Whose figures these are: a Neural Engine's family, else the chip."""
        return self.chip.family if self.unit == "ane" else self.chip.chip

    @property
    def works(self) -> list[work.Work]:
        return [whole(self.net, self.unit, self.chip.family).share(self.chunks)] * self.chunks

    @property
    def withheld(self) -> str | None:
        sites = nets.sites(self.net)
        return latency.explain_withholding(sites, [self.unit] * len(sites), self.chip)


@cache
def whole(net: str, unit: str, family: str) -> work.Work:
    sites = nets.sites(net)
    return work.count_work(sites, [unit] * len(sites), work.cache_bytes(family))


@cache
def rows() -> tuple[Row, ...]:
    with open(FILE, newline="", encoding="utf-8") as file:
        return tuple(
            Row(
                row["table"], chips.published()[row["chip"]], row["compute_units"], int(row["chunks"]), row["net"],
                float(row["published_ms"]), row["note"], row["aside"],
            )
            for row in csv.DictReader(file)
        )  # fmt: skip


def used(unit: str) -> list[Row]:
    """The rows that a unit's terms are fitted to."""
    found = [row for row in rows() if row.unit == unit and not row.aside and row.withheld is None]
    return [row for row in found if row.own in _START[unit]["tflops"]]


def fit(unit: str, found: Sequence[Row]) -> Terms:
    """The unit's terms: least squares of log ratios, each table with one weight, outliers drawn in."""
    from scipy.optimize import least_squares

    names = [
        (key, own) for key, value in _START[unit].items() for own in (value if isinstance(value, dict) else (None,))
    ]
    start = np.log([_START[unit][key] if own is None else _START[unit][key][own] for key, own in names])
    tables = Counter(row.table for row in found)
    weights = np.array([tables[row.table] ** -0.5 for row in found])
    published, stacked = np.log([row.ms for row in found]), _stacked(unit, found)

    def residuals(logs: Any) -> Any:
        terms = _terms(unit, names, np.exp(logs))
        said = np.log(said_of(stacked, terms))
        return np.concatenate([weights * (said - published), _DRAWN * (logs - start)])

    solved = least_squares(residuals, start, loss="soft_l1", f_scale=_ROBUST)
    return _terms(unit, names, np.exp(solved.x))


def _terms(unit: str, names: Sequence[tuple[str, str | None]], values: Any) -> Terms:
    found: Terms = {}
    for (key, own), value in zip(names, values, strict=True):
        if own is None:
            found[key] = float(value)
        else:
            found.setdefault(key, {})[own] = float(value)
    return found | ({"chunk_ms": _CHUNK_MS, "notch": _NOTCH} if unit == "ane" else {})


def said_ms(row: Row, terms: Terms) -> float:
    """What a unit's terms say of a row."""
    return float(said_of(_stacked(row.unit, [row]), terms)[0])


@dataclass(frozen=True)
class Stacked:
    """Rows of one unit, each amount as an array."""

    unit: str
    load: work.Load
    own: list[str]
    chunks: Any
    chips: Terms


def _stacked(unit: str, found: Sequence[Row]) -> Stacked:
    loads = [vars(getattr(row.works[0], unit)) for row in found]
    amounts: dict[str, Any] = {name: np.array([one[name] for one in loads], float) for name in loads[0]}
    load = work.load_of(amounts)
    fields = ("weight_gbs", "dispatch_ms", "resident_bytes") if unit == "ane" else ()
    own = {name: np.array([getattr(row.chip, name) for row in found], float) for name in fields}
    return Stacked(unit, load, [row.own for row in found], np.array([row.chunks for row in found]), own)


def said_of(rows: Stacked, terms: Terms) -> Any:
    flat = {
        key: np.array([value[own] for own in rows.own]) if isinstance(value, dict) else value
        for key, value in terms.items()
    } | rows.chips
    said = rows.chunks * getattr(latency, f"{rows.unit}_ms")(rows.load, flat)
    return said + _CHUNK_MS * (rows.chunks - 1) if rows.unit == "ane" else said


@cache
def held_out(unit: str) -> dict[Row, float]:
    """What is said of each row by terms that its table had no part in (see above)."""
    found, said = used(unit), {}
    for table in dict.fromkeys(row.table for row in found):
        others = [row for row in found if row.table != table]
        terms = fit(unit, others)
        known = {row.own for row in others}
        for row in (row for row in found if row.table == table):
            alone = terms
            if row.own not in known:
                alone = _without(unit, row, others)
            said[row] = said_ms(row, alone)
    return said


def _without(unit: str, row: Row, others: Sequence[Row]) -> Terms:
    mates = [one for one in used(unit) if one.table == row.table and one.own == row.own and one.net != row.net]
    return fit(unit, [*others, *mates])


@cache
def everything(unit: str) -> Terms:
    """The terms as they ship."""
    return fit(unit, used(unit))


def band(unit: str, without: str = "") -> dict[str, float]:
    """published / estimated between which nine in ten rows lie whose table had part neither in the fit nor in the band."""
    return _span([row.ms / said for row, said in held_out(unit).items() if row.table != without], level(unit))


@cache
def level(unit: str) -> float:
    """The share of rows that a band has to hold so that of the tables left out it holds nine in ten."""
    found = held_out(unit)
    for percent in range(round(100 * HOLDS), 100):
        bands = {
            table: _span([row.ms / said for row, said in found.items() if row.table != table], percent / 100)
            for table in {row.table for row in found}
        }
        inside = sum(
            bands[row.table]["low"] <= row.ms / said <= bands[row.table]["high"] for row, said in found.items()
        )
        if inside >= HOLDS * len(found):
            return percent / 100
    return 1.0


def _span(found: Sequence[float], share: float) -> dict[str, float]:
    """The narrowest span, as a quotient, that holds that share of the ratios, with the finite-sample correction."""
    ratios = np.sort(found)
    count = len(ratios)
    inside = min(count, math.ceil(share * (count + 1)))
    first = min((ratios[start + inside - 1] / ratios[start], start) for start in range(count - inside + 1))[1]
    return {"low": float(ratios[first]), "high": float(ratios[first + inside - 1]), "rows": count}


def write() -> None:
    """data/latency.json anew."""
    content: Terms = {
        "source": "fitted by tests/proof/placement/terms.py to data/published/latency.csv",
        "bands": {},
        "rows": {},
    }
    for unit in _START:
        found = used(unit)
        content[unit] = everything(unit)
        content["bands"][unit], content["rows"][unit] = band(unit), len(found)
    content["ane"] = content["ane"] | {"chips": dict(sorted(Counter(row.chip.chip for row in used("ane")).items()))}
    content["probes"] = {
        form: {key: value for key, value in vars(whole(f"{PROBE} form={form}", "ane", "H13").ane).items() if value}
        for form in ("original", "split_einsum")
    }
    latency.TERMS_FILE.write_text(json.dumps(_rounded(content), indent=1) + "\n", encoding="utf-8")
    latency.fitted.cache_clear()


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value

"""The choice of unit held against what was published of it (data/published/choices.csv), each row left out of the fit in turn.

A row counts as right where most of its ops were on the unit that is said. Its trivial answers: the Neural Engine wherever it takes the
ops, and the unit that most rows have.
"""

import csv
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from ane_sweep.placement import chips, choice, latency
from tests.proof.placement import nets, terms

FILE = terms.FILE.with_name("choices.csv")
_FIRST = 1.0  # where nothing else is known the faster unit


@dataclass(frozen=True)
class Row:
    """`ratio`: times as fast on the GPU, by the estimates; None where one of them is missing."""

    table: str
    chip: str
    compute_units: str
    net: str
    shares: tuple[float, float, float]  # cpu, gpu, ane
    ratio: float | None

    @property
    def unit(self) -> str:
        return "gpu" if self.shares[1] > self.shares[2] else "ane"


@cache
def rows() -> tuple[Row, ...]:
    """Those of which something is to be chosen: all units allowed."""
    found = []
    with open(FILE, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            counts = [float(row[f"ops_{unit}"]) for unit in ("cpu", "gpu", "ane")]
            ratio = choice.ratio(nets.sites(row["net"]), chips.published()[row["chip"]])
            shares = (counts[0] / sum(counts), counts[1] / sum(counts), counts[2] / sum(counts))
            found.append(Row(row["table"], row["chip"], row["compute_units"], row["net"], shares, ratio))
    return tuple(found)


def asked() -> list[Row]:
    return [row for row in rows() if row.compute_units == "all"]


def turn(found: Sequence[Row]) -> float:
    """The ratio from which programs are said to go to the GPU: the fewest misses, in the middle of the widest such gap."""
    known = sorted((row.ratio, row.unit) for row in found if row.ratio is not None)
    edges = [_FIRST, *(ratio for ratio, _ in known)]
    best: tuple[int, float, float] | None = None
    for low, high in pairwise(edges):
        if high <= low:
            continue
        middle = (low * high) ** 0.5
        misses = sum((ratio >= middle) != (unit == "gpu") for ratio, unit in known)
        if best is None or (misses, -high / low) < best[:2]:
            best = (misses, -high / low, middle)
    return _FIRST if best is None else best[2]


@dataclass(frozen=True)
class Score:
    """Rows that the model answers, how many of them right: fitted to all, each left out, each chip left out; trivial answers."""

    rows: int
    not_predicted: int
    ratio: float
    right: int
    left_out: int
    chip_left_out: int
    always_ane: int
    majority: int


def score() -> Score:
    found = [row for row in asked() if row.ratio is not None]

    def right(row: Row, others: Sequence[Row]) -> bool:
        assert row.ratio is not None
        return (row.ratio >= turn(others)) == (row.unit == "gpu")

    return Score(
        len(found), len(asked()) - len(found), turn(found), sum(right(row, found) for row in found),
        sum(right(row, [other for other in found if other is not row]) for row in found),
        sum(right(row, [other for other in found if other.chip != row.chip]) for row in found),
        sum(row.unit == "ane" for row in found), Counter(row.unit for row in found).most_common(1)[0][1],
    )  # fmt: skip


def write() -> None:
    """Put the ratio beside the other terms; after terms.write."""
    rows.cache_clear()
    said = score()
    content = json.loads(latency.TERMS_FILE.read_text(encoding="utf-8"))
    content["choice"] = {"ratio": round(said.ratio, 2), "rows": said.rows, "right": said.right}
    latency.TERMS_FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    latency.fitted.cache_clear()

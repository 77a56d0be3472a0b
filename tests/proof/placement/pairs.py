"""How often pairs of published latencies were ordered right by estimates that their table had no part in.

A pair is two rows of one table (one source and date, mostly one method) on one chip, as a sweep's cells are of one host.
Each row is estimated by terms that the whole table had no part in (`terms.held_out`). A pair is right if the published
figures are in the order of the estimates by more than NO_ORDER; a pair of figures within NO_ORDER counts as not right.

Pairs of one table share rows, so no bin counts as more pairs than it has rows, and its share is also taken by tables,
each with one weight. Four kinds of pairs are counted apart:

program  both on one unit; another net, form, length or cache
weights  both on one unit; one program whose weights alone differ in their bits
chunks   one program in more chunks. None is counted: the cost of a hand-over was taken from the one table with such pairs
units    on different units of the chip
guess    one of a band that is twice as wide either way. None is published, so it needs twice the ratio
"""

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from ane_sweep.placement import latency, ordering
from tests.proof.placement import terms
from tests.proof.placement.terms import Row

NO_ORDER = (
    0.03  # 8 of 10 repeated figures of one program in one table differ by at most 3.1 %, the others by 7 and 92 %
)
EDGES = (1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 6.0)
KINDS = ("program", "weights", "chunks", "units")  # and "guess"
SURE, LIKELY = 0.95, 0.75  # shares of right pairs that the words stand for
CHANCE = 0.5
FEWEST_TABLES = 5
DOUBT = 0.05  # of a lower bound: one-sided


@dataclass(frozen=True)
class Pair:
    """Two rows in the order of their estimates; `ratio` and `published`: the slower estimate's figure over the other's."""

    kind: str
    slow: Row
    fast: Row
    ratio: float
    published: float

    @property
    def is_right(self) -> bool:
        return self.published > 1 + NO_ORDER


@dataclass(frozen=True)
class Bin:
    """Counts of the pairs whose ratio lies in a bin. `lower`: bound of the share of right ones; `by_table`: mean of the
    tables' shares. None without pairs."""

    start: float
    end: float | None
    pairs: int
    right: int
    wrong: int
    tables: int
    lower: float | None
    by_table: float | None


@cache
def pairs() -> tuple[Pair, ...]:
    """All pairs of rows of one table and chip whose estimates differ."""
    said = {row: ms for unit in ("ane", "gpu", "cpu") for row, ms in terms.held_out(unit).items()}
    found = []
    for one, other in itertools.combinations(said, 2):
        if (one.table, one.chip.chip) != (other.table, other.chip.chip) or math.isclose(said[one], said[other]):
            continue
        fast, slow = sorted((one, other), key=said.__getitem__)
        found.append(Pair(_kind(slow, fast), slow, fast, said[slow] / said[fast], slow.ms / fast.ms))
    return tuple(found)


def _kind(one: Row, other: Row) -> str:
    if one.unit != other.unit:
        return "units"
    if one.net == other.net and one.chunks != other.chunks:
        return "chunks"
    plain = [[word for word in row.net.split() if not word.startswith("bits=")] for row in (one, other)]
    return "weights" if plain[0] == plain[1] and one.chunks == other.chunks else "program"


def count(kind: str, found: Sequence[Pair]) -> list[Bin]:
    counted = [pair for pair in found if pair.kind == kind and kind != "chunks"]
    ends = (*EDGES[1:], math.inf)
    return [
        _bin(start, end, [pair for pair in counted if start <= pair.ratio < end]) for start, end in zip(EDGES, ends)
    ]


def _bin(start: float, end: float, found: Sequence[Pair]) -> Bin:
    by_table: dict[str, list[bool]] = defaultdict(list)
    for pair in found:
        by_table[pair.slow.table].append(pair.is_right)
    right = sum(pair.is_right for pair in found)
    counted = min(len(found), len({row for pair in found for row in (pair.slow, pair.fast)}))
    return Bin(
        start, None if end == math.inf else end, len(found), right,
        sum(pair.published < 1 / (1 + NO_ORDER) for pair in found), len(by_table),
        lower_bound(right / len(found) * counted, counted) if found else None,
        sum(sum(one) / len(one) for one in by_table.values()) / len(by_table) if found else None,
    )  # fmt: skip


def lower_bound(right: float, count: int) -> float:
    """Return Clopper and Pearson's one-sided 95 % bound of a share."""
    from scipy.stats import beta

    return float(beta.ppf(DOUBT, right, count - right + 1)) if right else 0.0


def word_of(one: Bin, otherwise: ordering.Sureness) -> ordering.Sureness:
    """Return the word that a bin's counts allow; `otherwise`: the word for a bin without pairs."""
    if one.lower is None or one.by_table is None:
        return otherwise
    if one.lower >= SURE and one.by_table >= SURE and one.tables >= FEWEST_TABLES:
        return "sure"
    return "likely" if one.right >= LIKELY * one.pairs and one.lower >= CHANCE else "not told apart"


def rules(found: Sequence[Pair]) -> dict[str, Any]:
    """Return {kind: the ratios from which each word is said, and the counts behind them}.

    A word needs that its bin and all larger ones allow it. A bin without pairs of its kind takes the word of `program`,
    but never "sure".
    """
    general = [word_of(one, "not told apart") for one in count("program", found)]
    rules = {kind: _rule(count(kind, found), general) for kind in KINDS}
    likely = rules["program"]["likely"]
    return rules | {"guess": {"likely": likely and latency.GUESSED * likely, "sure": None, "counts": []}}


def _rule(bins: Sequence[Bin], general: Sequence[ordering.Sureness]) -> dict[str, Any]:
    words = [word_of(one, "likely" if word == "sure" else word) for one, word in zip(bins, general, strict=True)]
    sure = _from(word == "sure" for word in words)
    likely = _from(word != "not told apart" for word in words)
    return {"likely": likely, "sure": sure, "counts": [_rounded(one) for one in bins if one.pairs]}


def _from(allowed: Iterable[bool]) -> float | None:
    """Return the smallest edge from which every bin allows a word, or None."""
    found = None
    for edge, is_allowed in reversed(list(zip(EDGES, allowed, strict=True))):
        if not is_allowed:
            break
        found = edge
    return found


def _rounded(one: Bin) -> dict[str, Any]:
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in asdict(one).items()}


def left_out() -> dict[str, tuple[int, int]]:
    """Return {word: (right pairs, pairs)} if each table is left out of the counts, too, that its pairs are judged by."""
    found: dict[str, list[bool]] = defaultdict(list)
    for table in {pair.slow.table for pair in pairs()}:
        others = rules([pair for pair in pairs() if pair.slow.table != table])
        for pair in (pair for pair in pairs() if pair.slow.table == table and pair.kind != "chunks"):
            found[ordering.find_word(others[pair.kind], pair.ratio)].append(pair.is_right)
    return {word: (sum(one), len(one)) for word, one in found.items()}


def write() -> None:
    """Write data/ordering.json anew."""
    content = {"source": "counted by tests/proof/placement/pairs.py", "no_order": NO_ORDER, "rules": rules(pairs())}
    ordering.FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    ordering.counted.cache_clear()

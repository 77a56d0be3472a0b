"""How sure the order of two estimated latencies on one chip is, from how often published pairs were ordered right.

data/ordering.json holds the counts of held-out pairs and the ratios that follow from them (METHOD.md, "How sure an order is").
"""

import json
from functools import cache
from pathlib import Path
from typing import Literal, TypedDict, get_args

from ane_sweep.placement import latency

FILE = Path(__file__).parent / "data" / "ordering.json"
Sureness = Literal["sure", "likely", "not told apart"]
WORDS: tuple[Sureness, ...] = get_args(Sureness)
# The difference between two programs: in their ops or sizes, in the bits of the weights, in the number of chunks, in the
# unit that runs them, or that an estimate is a guess
Difference = Literal["program", "weights", "chunks", "units", "guess"]


class PairCount(TypedDict):
    """The pairs whose ratio is `start` or more, up to the next count, and those of them that were ordered right."""

    start: float
    pairs: int
    right: int


class OrderRule(TypedDict):
    """The ratios from which each word holds (None: it never does), and the counts that they follow from."""

    likely: float | None
    sure: float | None
    counts: list[PairCount]


@cache
def counted() -> dict[Difference, OrderRule]:
    content: dict[Difference, OrderRule] = json.loads(FILE.read_text(encoding="utf-8"))["rules"]
    return content


def how_sure(ratio: float, *differences: Difference) -> Sureness:
    """Return how sure it is that the slower of two estimates on one chip is the slower program.

    ratio        slower / faster
    differences  between the two programs; the weakest word of them counts. None given: "program"
    """
    words = [find_word(counted()[difference], ratio) for difference in differences or ("program",)]
    return max(words, key=WORDS.index)


def find_word(rule: OrderRule, ratio: float) -> Sureness:
    """Return the word for a ratio by one rule of the file: the ratios from which pairs are "likely" and "sure"."""
    if rule["sure"] is not None and ratio >= rule["sure"]:
        return "sure"
    return "likely" if rule["likely"] is not None and ratio >= rule["likely"] else "not told apart"


def is_guess(low: float, high: float) -> bool:
    """Return True if the band of an estimate is that of a guess, of which there are no pairs (latency.py)."""
    narrowest: float = min(band["high"] / band["low"] for band in latency.fitted()["bands"].values())
    return high >= low * latency.GUESSED**2 * narrowest


def count_right(word: Sureness, difference: Difference = "program") -> tuple[int, int]:
    """Return (pairs that were ordered right, all pairs) of the held-out pairs that have a word."""
    rule = counted()[difference]
    bins = [one for one in rule["counts"] if find_word(rule, one["start"]) == word]
    return sum(one["right"] for one in bins), sum(one["pairs"] for one in bins)

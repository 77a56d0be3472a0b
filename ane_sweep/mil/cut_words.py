"""Where a program is cut, as one writes it: `cuts=[1811MB]`, `[0.6]`, `[layer:24]`, `[op:NAME]`. Standard library only.

Each word is the end of a chunk: so many bytes of weights, such a share of them, that many layers, or that op are ahead of
the cut. What a word comes to in a program is mil/places.py's.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

UNITS = {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_BYTES = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(UNITS)})")
FORMS = "bytes as 1811MB, a share of the weights as 0.6, layer:24, op:NAME"


@dataclass(frozen=True)
class CutWord:
    """One word: `number` bytes, share or layer, or the `name` of an op."""

    word: str
    kind: Literal["bytes", "share", "layer", "op"]
    number: float = 0
    name: str = ""


def parse_place(word: Any) -> CutWord | None:
    """What a word means; None where it is none of FORMS."""
    text = str(word)
    if isinstance(word, (int, float)):
        return CutWord(text, "share", float(word)) if 0 < word < 1 else None
    if (found := _BYTES.fullmatch(text)) and float(found[1]) > 0:
        return CutWord(text, "bytes", float(found[1]) * UNITS[found[2]])
    kind, _, name = text.partition(":")
    if kind == "layer" and name.isascii() and name.isdecimal() and 0 < int(name) < 10**6:
        return CutWord(text, "layer", int(name))
    return CutWord(text, "op", name=name) if kind == "op" and name else None


def parse_places(words: list[Any]) -> list[CutWord]:
    """Those of a list that `problem` finds nothing wrong with."""
    return [found for word in words if (found := parse_place(word))]


def find_problem(name: str, words: Any) -> str | None:
    """What is wrong with a list of words, in one sentence."""
    said = [parse_place(word) for word in words]
    if not words:
        return f"{name}=[]: expected a place or more: {FORMS}; null: no cuts of one's own"
    if None in said:
        return f"{name}: {words[said.index(None)]}: expected {FORMS}"
    twice = next((one.word for number, one in enumerate(said) if one and one in said[:number]), None)
    return f"{name}: {twice} stands there twice" if twice else None

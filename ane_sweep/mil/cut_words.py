"""Parse the words that say where a program is cut: `cuts=[1811MB]`, `[0.6]`, `[layer:24]`, `[op:NAME]`.

Each word is the end of a chunk: the cut comes after so many bytes of weights, that share of them, that layer, or that
op. places.py finds the cut in a program. Only the standard library is imported.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

UNITS = {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_BYTES = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(UNITS)})")
FORMS = "bytes as 1811MB, a share of the weights as 0.6, layer:24, op:NAME"


@dataclass(frozen=True)
class CutWord:
    """One word of `cuts`: a `number` of bytes, a share or a layer, or the `name` of an op."""

    word: str
    kind: Literal["bytes", "share", "layer", "op"]
    number: float = 0
    name: str = ""


def parse_place(word: object) -> CutWord | None:
    """Parse a word of `cuts`; return None if it has none of the forms in FORMS."""
    text = str(word)
    if isinstance(word, (int, float)):
        return CutWord(text, "share", float(word)) if 0 < word < 1 else None
    if (match := _BYTES.fullmatch(text)) and float(match[1]) > 0:
        return CutWord(text, "bytes", float(match[1]) * UNITS[match[2]])
    kind, _, name = text.partition(":")
    if kind == "layer" and name.isascii() and name.isdecimal() and 0 < int(name) < 10**6:
        return CutWord(text, "layer", int(name))
    return CutWord(text, "op", name=name) if kind == "op" and name else None


def parse_places(words: Sequence[object]) -> list[CutWord]:
    """Parse a list of words that `find_problem` accepts."""
    return [place for word in words if (place := parse_place(word))]


def find_problem(name: str, words: Sequence[object]) -> str | None:
    """Return one sentence about the first fault of a list of words, or None."""
    places = [parse_place(word) for word in words]
    if not words:
        return f"{name}=[]: expected one place or more ({FORMS}), or null for no explicit cuts"
    if None in places:
        return f"{name}: {words[places.index(None)]}: expected {FORMS}"
    twice = next((place.word for index, place in enumerate(places) if place and place in places[:index]), None)
    return f"{name}: {twice} is given twice" if twice else None

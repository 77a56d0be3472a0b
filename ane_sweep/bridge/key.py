"""The rules for the value of one key of a configuration; the tables of schema.py and architecture.py consist of them."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ane_sweep.errors import suggestion

NONE = type(None)
NUMBER = (int, float)


@dataclass(frozen=True)
class Key:
    """The values that one key takes, and its purpose.

    words   words allowed in place of a number
    most    the largest number, or the longest list; `why` is the reason for the limit, `why_least` that for `least`
    items   types of a list's items
    label   whether it is only a name for people, which changes no result
    check   function of (name, value) for further rules: returns one sentence if the value is wrong, or None
    """

    types: tuple[type, ...]
    help: str
    choices: tuple[object, ...] = ()
    least: float | None = None
    words: tuple[str, ...] = ()
    most: float | None = None
    why: str = ""
    why_least: str = ""
    items: tuple[type, ...] = ()
    label: bool = False
    check: Callable[[str, Any], str | None] | None = None

    def problem(self, name: str, value: object) -> str | None:
        """Return one sentence if `value` is not acceptable, else None. A bool is never an int here."""
        if not _is(value, self.types):
            strange = "" if isinstance(value, (*NUMBER, str, list, dict, NONE)) else f", got {type(value).__name__}"
            return f"{name}={abbreviate(value)}: expected {_named(self.types)}{strange}"
        if unfit := _unfit(value):
            return f"{name}={abbreviate(value)}: {unfit}"
        if self.words and isinstance(value, str):
            choices = f"a number, {', '.join(self.words)}"
            return None if value in self.words else f"{name}={abbreviate(value, '')}: unknown; choices: {choices}"
        for one in value if isinstance(value, list) else [value]:
            if self.choices and one is not None and one not in self.choices:
                choices = ", ".join(map(str, self.choices))
                return f"{name}={abbreviate(one, '')}: unknown{suggestion(one, self.choices)}; choices: {choices}"
        if self.items and isinstance(value, list) and not all(_is(item, self.items) for item in value):
            return f"{name}={abbreviate(value)}: expected a list of {_named(self.items).replace('a number', 'numbers')}"
        if beyond := self._out_of_bounds(name, value):
            return beyond
        return self.check(name, value) if self.check and value is not None else None

    def _out_of_bounds(self, name: str, value: object) -> str | None:
        if self.least is not None and isinstance(value, NUMBER) and value < self.least:
            return f"{name}={value}: must be {self.least:g} or more{'; ' * bool(self.why_least)}{self.why_least}"
        size = len(value) if isinstance(value, list) else value
        if self.most is not None and isinstance(size, NUMBER) and size > self.most:
            values = " values" if isinstance(value, list) else ""
            return f"{name}={abbreviate(value, '')}: must be {self.most:,}{values} or less; {self.why}"
        return None


def abbreviate(value: object, quote: str = "'") -> str:
    """Return a value as text for a sentence, cut if it is longer than 100 characters."""
    text = repr(value) if quote or not isinstance(value, str) else value
    return text if len(text) <= 100 else f"{text[:80]}... ({len(text):,} characters)"


def format_value(value: object) -> str:
    """Return a value as a user would type it: `[1811MB,layer:24]`, `null`, `true`, `2`."""
    if isinstance(value, list):
        return f"[{','.join(map(format_value, value))}]"
    if isinstance(value, (bool, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "null" if value is None else str(value)


def _is(value: object, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and not (isinstance(value, bool) and bool not in types)


def _named(types: tuple[type, ...]) -> str:
    words: dict[type, str] = {NONE: "null", str: "text", bool: "true or false", list: "a list", dict: "a mapping"}
    words |= {float: "a number", int: "a number" if float in types else "a whole number"}
    return " or ".join(dict.fromkeys(words.get(t, t.__name__) for t in types))


def _unfit(value: object) -> str | None:
    """Return why a value, or an item of it, cannot be part of a key or a record; None if it can."""
    if isinstance(value, dict):
        if len({type(key) for key in value} | {str}) > 1 and {type(key) for key in value} != {int}:
            return "expected keys of text"
        return next((unfit for item in value.values() if (unfit := _unfit(item))), None)
    if isinstance(value, list):
        return next((unfit for item in value if (unfit := _unfit(item))), None)
    if isinstance(value, str):
        return "text cannot hold a NUL" if "\0" in value else None
    if not isinstance(value, (int, float, NONE)):
        return f"expected text, numbers, lists and mappings, not {type(value).__name__}"
    if isinstance(value, float):
        return None if math.isfinite(value) else "numbers must be finite"
    return "whole numbers have at most 64 bits" if isinstance(value, int) and abs(value) >= 2**63 else None

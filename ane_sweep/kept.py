"""JSON that one command leaves for the next, read in the form that it must have.

A file that is torn, no JSON or of another form counts as absent: what it held is made again, and that is said once.

A form is a type (bool is no int here, and numbers are finite), None, a function that says whether a value fits, a tuple
of forms of which one must fit, [form] for a list, {str: form} for a mapping, or {name: form} for one that has at least
these names; a name that ends in "?" may be absent.
"""

import math
from pathlib import Path
from typing import Any

from ane_sweep import bridge

NUMBER = (int, float)
_METRIC = {
    "name": str,
    "value": lambda value: not isinstance(value, (list, dict)),
    "unit": str,
    "kind": str,
    "source": (str, None),
    "chip": (str, None),
}
RESULT = {  # result.json, as bridge describes it
    "schema": int,
    "stage": str,
    "key": str,
    "status": bridge.STATUSES,
    "reason": (str, None),
    "metrics": [_METRIC],
    "realised": dict,
    "facts": {"timing?": {"median_ms": NUMBER, "samples_ms": [NUMBER]}, "placement?": [dict], "folder?": str},
    "doubts": [str],
    "seconds": NUMBER,
    "peak_bytes": (int, None),
}
_told: set[str] = set()


def read(path: Path, form: Any, instead: str) -> dict[str, Any] | None:
    """The object in a file, or None where there is none of this form; `instead` is what then happens, as one clause."""
    value = bridge.read_json(path)
    if value is not None and fits(value, form):
        return value
    if path.exists():
        tell(f"{path} is damaged: {instead}")
    return None


def tell(sentence: str) -> None:
    """Say it once, however often what is damaged is met."""
    from ane_sweep.command import say

    if sentence not in _told:
        _told.add(sentence)
        say(f"doubt: {sentence}")


def fits(value: Any, form: Any) -> bool:
    """Whether a value has a form."""
    if isinstance(form, tuple):
        return any(fits(value, one) for one in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(item, form[0]) for item in value)
    if isinstance(form, dict):
        return isinstance(value, dict) and _names_fit(value, form)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(form, type):
        return isinstance(value, form) and (form is bool or not isinstance(value, bool))
    return bool(form(value)) if callable(form) else value == form


def _names_fit(value: dict[str, Any], form: dict[Any, Any]) -> bool:
    if str in form:
        return all(fits(item, form[str]) for item in value.values())
    names = {name: name.removesuffix("?") for name in form}
    return all(fits(value[names[n]], one) if names[n] in value else n != names[n] for n, one in form.items())

"""Short forms of words and values, expanded without OmegaConf: `executor=dask`, `latency=off`, `chips=m1,m4`, `${seq_len}`."""

import re
from collections.abc import Callable, Iterator

from ane_sweep.errors import suggestion
from ane_sweep.placement import chips
from ane_sweep.planner import architecture

REPEATS = "latency.repeats"
SHORT = {"executor": "executor.name", "latency": REPEATS}  # a key that stands for one of its own
_OFF: tuple[object, ...] = ("off", False)  # YAML reads `off` as False
_PLAIN = re.compile(r"\$\{[A-Za-z_]\w*(\.\w+)*\}")  # a reference to one key, from the root


def follow(config: dict[str, object]) -> dict[str, object] | None:
    """Return a copy with every reference to one key resolved, or None if there are other interpolations.

    OmegaConf would take 7 ms per configuration.
    """
    found = list(_interpolations(config))
    if not all(_PLAIN.fullmatch(text) for *_, text in found):
        return None
    values = [architecture.at(config, text[2:-1]) for *_, text in found]
    if any(value is None or "${" in str(value) for value in values):
        return None
    replaced = {path: value for (path, _), value in zip(found, values)}
    return {key: _with(value, replaced, (key,)) for key, value in config.items()}


def _interpolations(node: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (path, text) of every leaf that contains a reference."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _interpolations(value, (*path, key))
    elif isinstance(node, (str, list)) and "${" in str(node):
        yield path, str(node)


def _with(node: object, values: dict[tuple[str, ...], object], path: tuple[str, ...]) -> object:
    """Return a copy with some leaves replaced."""
    if isinstance(node, dict):
        return {key: _with(value, values, (*path, key)) for key, value in node.items()}
    return values.get(path, node)


def name_chips(named: object) -> object:
    """Return `chips` as a list of different chips by their table names; one name becomes a list, and a device stands for its chip."""
    listed = [named] if isinstance(named, str) and "${" not in named else named
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        return named  # which the schema refuses, or an interpolation
    known = [chips.canonical(name) for name in listed]
    return list(dict.fromkeys(known)) if known != listed else listed


def name_repeats(policy: object, default: Callable[[], object]) -> object:
    """Return `latency`'s options with `repeats: 0` for `off`; a file's `latency: off` has the others of `default`."""
    found, is_off = (default(), True) if policy in _OFF else (policy, False)
    if isinstance(found, dict) and (is_off or found.get("repeats") in _OFF):
        return {**found, "repeats": 0}
    return found


def expand_axis(keys: tuple[str, ...], row: tuple[object, ...]) -> tuple[object, ...]:
    """Return the values of one row of an axis with 0 for `latency.repeats=off`."""
    return tuple(0 if key == REPEATS and value in _OFF else value for key, value in zip(keys, row))


def odd_repeats(word: str) -> str | None:
    """Return the problem of a word such as `latency=of` under the name that was typed, or None."""
    key, _, values = word.partition("=")
    odd = [one for one in values.split(",") if key == "latency" and re.fullmatch("[a-z]+", one)]
    odd = [one for one in odd if one not in ("auto", "off", "false")]
    return (
        f"latency={odd[0]}: unknown{suggestion(odd[0], ['auto', 'off'])}; choices: a number, auto, off" if odd else None
    )


def expand_short_key(word: str) -> str:
    """Expand `executor=dask`, short for `executor.name=dask`, `latency=off` for `latency.repeats=off`, and `chips=m1,m4`,
    short for a list.
    """
    if re.fullmatch(r"chips=[\w -]+(,[\w -]+)+", word):
        return f"chips=[{word.removeprefix('chips=')}]"
    key, _, value = word.partition("=")
    return f"{SHORT[key]}={value}" if key in SHORT and value and not value.startswith("{") else word

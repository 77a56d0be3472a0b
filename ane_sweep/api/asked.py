"""The request for a matrix in Python: words as on the command line and keyword arguments become words of Hydra's grammar."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike, fspath

from ane_sweep.errors import ConfigError
from ane_sweep.planner import compose, config, schema
from ane_sweep.planner.matrix import Request
from ane_sweep.terminal import asks_help


def all_words(words: Iterable[str], axes: Mapping[str, object]) -> list[str]:
    """Return the words that a command line would ask for a matrix with. Raises ConfigError."""
    args = ["-m", *as_words(words), *(word for key, value in axes.items() for word in as_word(key, value))]
    if asks_help(args):
        raise ConfigError("--help: the keys are shown by `ane-sweep --help`, and these functions by help(ane_sweep)")
    return args


def request(words: Iterable[str], axes: Mapping[str, object]) -> tuple[Request, list[str]]:
    """Return the request, and the equivalent words of a command line. Raises ConfigError."""
    args = all_words(words, axes)
    with compose.isolate_hydra():
        return config.load(args), args


def as_words(words: Iterable[str]) -> list[str]:
    """Split texts into words as a shell does. Raises ConfigError for a value that is not text."""
    found = []
    for text in words:
        if not isinstance(text, str):
            raise ConfigError(f"{text!r:.100}: expected words as text, or axes as keyword arguments")
        try:
            found += shlex.split(text)
        except ValueError as error:
            raise ConfigError(f"{text}: {str(error).lower()}") from None
    return [word for word in found if word not in ("-m", "--multirun")]


def as_word(key: str, value: object) -> Iterator[str]:
    """Yield `chunks=[1, 2]` as `chunks=1,2`; a mapping gives one word for each of its keys."""
    known = schema.KEYS.get(key)
    if isinstance(value, Mapping) and (known is None or dict not in known.types):
        for name, one in value.items():
            yield from as_word(f"{key}.{name}", one)
        return
    value = _plain(value)
    is_list = known is not None and list in known.types and str not in known.types
    whole = is_list and not any(isinstance(one, list) for one in _listed(value))
    values = _listed(value) if isinstance(value, list) and not whole else [value]
    if not values:
        raise ConfigError(f"{key}=[]: no values")
    yield f"{'+' if key == 'sweep' else ''}{key}={','.join(map(compose.as_text, values))}"


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _plain(value: object) -> object:
    """Convert tuples, ranges and arrays to lists, paths to text, numpy's numbers to Python's."""
    if isinstance(value, PathLike):
        return fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple, range)) else value

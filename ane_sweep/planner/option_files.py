"""Checks of an option file before it is built: it must be text, a mapping, and of limited size. A file from elsewhere
may be deep, contain itself through an anchor, or have aliases that stand for millions of values.
"""

from functools import lru_cache
from pathlib import Path

import yaml

from ane_sweep.errors import ConfigError
from ane_sweep.mil import untrusted

MOST_BYTES, MOST_DEPTH, MOST_DIGITS = 1_000_000, 32, 100
MOST_VALUES = 5000  # OmegaConf takes a millisecond for two of them, each time that the file is composed
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check(path: Path) -> str:
    """Check one file and return its text. Raises ConfigError with the problem, and its line if known."""
    text = read(path)
    try:
        _check(text)
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {problem(error)}; an option file is YAML, as those in conf/") from None
    return text


@lru_cache(maxsize=256)
def _check(text: str) -> None:
    _check_depth(text)
    root = yaml.compose(text, Loader=_Loader)
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        raise ValueError("it holds no `key: value` pairs")
    if _values(root, {}, set()) > MOST_VALUES:
        raise ValueError(f"with its aliases written out it has more than {MOST_VALUES:,} values")


def read(path: Path) -> str:
    """Return the text of an option file. Raises ConfigError."""
    try:
        return untrusted.read_file(path, MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        why = f"it is no UTF-8 text (byte {error.start})"
    except (OSError, ValueError) as error:
        why = problem(error)
    raise ConfigError(f"{path}: {why}; an option file is YAML, as those in conf/")


def problem(error: Exception) -> str:
    """Return an error as one sentence, with the line of a YAML error."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        return " ".join(filter(None, (error.context, error.problem))) + (f" (line {mark.line + 1})" if mark else "")
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return " ".join(line.strip() for line in str(error).splitlines()[:3] if line.strip()) or type(error).__name__


def _check_depth(text: str) -> None:
    """Check the nesting through parser events, which need no recursion; building the values would recurse."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MOST_DEPTH:
                raise ValueError(f"it is nested more than {MOST_DEPTH} deep (line {event.start_mark.line + 1})")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _values(node: yaml.Node, known: dict[int, int], inside: set[int]) -> int:
    """Return the number of values in a node with its aliases expanded; each node is counted once."""
    if id(node) in inside:
        raise ValueError(f"it holds itself through an alias (line {node.start_mark.line + 1})")
    if id(node) not in known:
        if node.tag in _NUMBERS and len(node.value) > MOST_DIGITS:
            raise ValueError(f"a number of {len(node.value):,} digits (line {node.start_mark.line + 1})")
        inside.add(id(node))
        parts = node.value if isinstance(node, (yaml.MappingNode, yaml.SequenceNode)) else []
        pairs = [part for entry in parts for part in (entry if isinstance(entry, tuple) else (entry,))]
        known[id(node)] = 1 + sum(_values(part, known, inside) for part in pairs)
        inside.discard(id(node))
    return known[id(node)]

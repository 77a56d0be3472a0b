"""What a checkpoint may say of an architecture, checked against an option's that works, before anybody computes with it
or transformers sees it. Standard library only.
"""

from collections.abc import Mapping
from typing import Any

SIZES = (
    "vocab_size",
    "hidden_size",
    "n_embd",
    "d_model",
    "dim",
)  # the planner reads these, beside an option's arch_keys
MOST = 1 << 31
_KINDS: dict[type, str] = {str: "text", list: "list", dict: "mapping"}


def problems(arch: Mapping[str, Any], option: Mapping[str, Any]) -> list[str]:
    """`key=value: what is expected` for every key of an architecture that is not of the kind that the option's has."""
    sizes, like = {*SIZES, *option["arch_keys"].values()}, option["arch"]
    found = []
    for key, value in arch.items():
        wanted = f"a whole number from 1 to {MOST - 1}" if key in sizes else _wanted(key, value, like.get(key))
        if key in sizes and type(value) is int and 0 < value < MOST:
            continue
        if wanted:
            found.append(f"{key}={repr(value)[:80]}: expected {wanted}")
    return found


def _wanted(key: str, value: Any, like: Any) -> str:
    """What a value should be, "" where it may be as it is. Null stands for "the family's own" wherever it is taken."""
    if value is None or like is None:
        return ""
    if key.endswith("_token_id"):
        ids = value if isinstance(value, list) else [value]
        return "" if all(type(one) is int for one in ids) else "a token id"
    if isinstance(like, bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(like, (int, float)):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return "" if is_number and 0 <= value < MOST else f"a number from 0 to {MOST - 1}"
    return "" if isinstance(value, type(like)) else f"a {_KINDS.get(type(like), 'value of another kind')}"

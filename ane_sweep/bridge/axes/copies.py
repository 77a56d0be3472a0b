"""The axes of several copies of a program that are loaded at once and timed together: see runtimes/_copies.py."""

from dataclasses import dataclass
from typing import Any

from ane_sweep.bridge.axes import Asked, axis

MOST_DIFFERENT = 15  # what four bits tell apart
_LOADED = "each is a program in memory"
_SIZES = "copies_sizes: the sizes of several copies of one whole program; use copies=2 or more, and chunks=1"


def _kind(asked: Asked) -> str | None:
    if asked["copies_kind"] == "different" and asked["copies"] > MOST_DIFFERENT:
        return f"copies={asked['copies']} copies_kind=different: at most {MOST_DIFFERENT} are told apart; use identical"
    return None


def _no_shares(name: str, value: Any) -> str | None:
    if all(0 < share <= 1 for share in value):
        return None
    return f"{name}={value}: expected shares of the program, above 0 and at most 1"


def _sizes(asked: Asked) -> str | None:
    return _SIZES if asked["copies_sizes"] and (asked["copies"] == 1 or asked["chunks"] != 1) else None


@dataclass(frozen=True, kw_only=True)
class Copies:
    """The axes of copies; with one copy they enter no key."""

    copies: int = axis(
        "programs loaded at once and timed in turns",
        least=1,
        most=1000,
        why=_LOADED,
        plain=1,
        shapes=("latency",),
        honoured="chunks",
        unhonoured="copies={copies}: runtime={runtime} loads no program; use runtime=reference or coreml",
    )
    copies_kind: str = axis(
        "the same program, or each with other weights",
        choices=("identical", "different"),
        plain="identical",
        shapes=("latency",),
        honoured="chunks",
        refuses=_kind,
    )
    copies_order: str = axis(
        "in which order they are loaded; they are always called forward",
        choices=("forward", "reverse"),
        plain="forward",
        shapes=("latency",),
        honoured="chunks",
    )
    copies_sizes: list[float] | None = axis(
        "how much of the program each copy in turn is, 0 to 1; null: all of it",
        most=1000,
        why=_LOADED,
        check=_no_shares,
        plain=None,
        shapes=("latency",),
        honoured="chunks",
        unhonoured=_SIZES,
        refuses=_sizes,
    )

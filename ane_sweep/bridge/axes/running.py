"""Axes of how a program is run: the reference runtime's arithmetic (mil/effects.py), copies that are timed together, and load
hints for Core ML.
"""

from dataclasses import dataclass
from functools import partial

from ane_sweep.bridge.axes import RUNS, Asked, Only, axis
from ane_sweep.errors import ConfigError
from ane_sweep.mil.effects import MODES, select_effects

_WITH_ANE = "effects={value} mean something with numerics=ane alone, not with {numerics}"
MOST_DIFFERENT = 15  # what four bits tell apart
_LOADED = "each is a program in memory"
_SIZES = "copies_sizes: the sizes of several copies of one whole program; use copies=2 or more, and chunks=1"


def _unknown(name: str, value: list[str]) -> str | None:
    try:
        select_effects(value)
    except ConfigError as error:
        return f"{name}: {error.problems[0]}"
    return None


@dataclass(frozen=True, kw_only=True)
class Numerics:
    numerics: str = axis(
        "how the reference runtime computes; auto = as the program declares",
        choices=("auto", *MODES),
        plain="auto",
        shapes=(RUNS,),
        honoured="numerics",
        unhonoured="numerics={numerics}: runtime={runtime} computes as it does; numerics=auto, or runtime=reference",
        only=(
            Only(
                "compute",
                ("fp16",),
                "numerics={numerics} is about fp16 values, and precision={precision} has none; use numerics=auto",
                when=("fp16", "ane"),
            ),
        ),
    )
    effects: list[str] | None = axis(
        "numerics=ane: which known effects of the Neural Engine; null: those measured by several",
        check=_unknown,
        plain=None,
        shapes=(RUNS,),
        honoured="effects",
        unhonoured=_WITH_ANE,
        only=(Only("numerics", ("ane",), _WITH_ANE),),
    )


def _kind(asked: Asked) -> str | None:
    if asked["copies_kind"] == "different" and asked["copies"] > MOST_DIFFERENT:
        return f"copies={asked['copies']} copies_kind=different: at most {MOST_DIFFERENT} are told apart; use identical"
    return None


def _no_shares(name: str, value: list[float]) -> str | None:
    if all(0 < share <= 1 for share in value):
        return None
    return f"{name}={value}: expected shares of the program, above 0 and at most 1"


_copies = partial(axis, shapes=("latency",), honoured="chunks")


@dataclass(frozen=True, kw_only=True)
class Copies:
    """The axes of copies; with one copy they are part of no key."""

    copies: int = _copies(
        "programs loaded at once and timed in turns",
        least=1,
        most=1000,
        why=_LOADED,
        plain=1,
        unhonoured="copies={copies}: runtime={runtime} loads no program; use runtime=reference or coreml",
    )
    copies_kind: str = _copies(
        "the same program, or each with other weights",
        choices=("identical", "different"),
        plain="identical",
        refuses=_kind,
    )
    copies_order: str = _copies(
        "in which order they are loaded; they are always called forward",
        choices=("forward", "reverse"),
        plain="forward",
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
        refuses=lambda asked: (
            _SIZES if asked["copies_sizes"] and (asked["copies"] == 1 or asked["chunks"] != 1) else None
        ),
    )


_hint = partial(axis, enters=(RUNS, "load"), honoured="hints", late=True)


@dataclass(frozen=True, kw_only=True)
class Hints:
    """The load hints of MLOptimizationHints (macOS 15, iOS 18). They affect no plan: MLComputePlan of coremltools 9.0
    takes none.
    """

    reshape_frequency: str = _hint(
        "a load hint: how often the shapes of the inputs change", choices=("frequent", "infrequent"), plain="frequent"
    )
    specialization: str = _hint(
        "a load hint: what Core ML specialises the program for; fast_prediction takes longer to load",
        choices=("default", "fast_prediction"),
        plain="default",
    )
    low_precision_accumulation: bool = _hint("a load hint: the GPU may accumulate in fp16", plain=False)

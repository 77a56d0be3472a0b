"""The axes of the reference runtime's arithmetic: see mil/effects.py."""

from dataclasses import dataclass
from typing import Any

from ane_sweep.bridge.axes import RUNS, Only, axis
from ane_sweep.errors import ConfigError
from ane_sweep.mil.effects import MODES, select_effects

_WITH_ANE = "effects={value} mean something with numerics=ane alone, not with {numerics}"


def _unknown(name: str, value: Any) -> str | None:
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

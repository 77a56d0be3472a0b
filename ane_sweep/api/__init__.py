"""The implementation of the functions of `ane_sweep`: arguments become words of the command line, records become objects."""

import inspect
from collections.abc import Callable

from ane_sweep.bridge.cell import AXES

_SETTINGS = ("chips", "latency", "budget_minutes", "out", "sweep")


def name_axes(*functions: Callable[..., object]) -> None:
    """Let each function's signature name the axes and the commonest settings; it still takes any other keyword."""
    for function in functions:
        plain = inspect.signature(function)
        words, axes = plain.parameters.values()
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
            for name in dict.fromkeys([*AXES, *_SETTINGS])
            if name.isidentifier()
        ]
        function.__signature__ = plain.replace(parameters=[words, *named, axes])  # type: ignore[attr-defined]

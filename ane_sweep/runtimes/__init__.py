"""Runtimes, one file each; the file's name is its registration.

A runtime `runtimes/<name>.py` holds

    HONOURS      frozenset of the axes that change what it runs: "chunks", "compute_units", "precision", "target",
                 "numerics", "effects"
    NEEDS        "program" (packages to execute) or "checkpoint" (weights for a torch module)
    available()  None, or why this host cannot ("needs macOS")
    load(params, inputs)  a Runtime; whatever is heavy is imported in here
    functions(params, inputs, names)  the functions of a program with a key-value cache, {name: Runtime}; each with
                 `reset()`, which makes new `states`, and a prediction that goes on from those of the one before

A Runtime has `realised` (what really runs: runtime, numerics, threads, compute_units, chunks) and
`predict(inputs) -> outputs`, both dictionaries of numpy arrays by name. This file imports nothing heavy: the planner
calls it.
"""

import importlib
import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from ane_sweep.errors import ConfigError
from ane_sweep.models._options import DECODE, PREFILL
from ane_sweep.runtimes import _decoding

_HERE = Path(__file__).parent


class Runtime(Protocol):
    """Something loaded and ready to predict."""

    realised: dict[str, Any]

    def predict(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Outputs by name for inputs by name, numpy arrays both. Raises errors.PackageError for inputs that do not
        fit.
        """
        ...


def names() -> list[str]:
    """Known runtimes, sorted: the modules of this folder that are not helpers."""
    return sorted(path.stem for path in _HERE.glob("*.py") if not path.stem.startswith("_"))


def load(params: dict[str, Any], inputs: dict[str, Path]) -> Any:
    """The Runtime of `params["runtime"]`; with options {cache: stateful}, its two functions driven as one."""
    module = get(params["runtime"])
    if params.get("options", {}).get("cache") != "stateful":
        return module.load(params, inputs)
    return _decoding.Decoding(module.functions(params, inputs, (PREFILL, DECODE)))


@cache
def get(name: str) -> ModuleType:
    """Import a runtime's module. Raises ConfigError for an unknown name; a broken import inside one is not caught."""
    known = names()
    if name not in known or importlib.util.find_spec(f"{__name__}.{name}") is None:
        raise ConfigError(
            f"unknown runtime {name!r}; known: {', '.join(known)}. To add it, write ane_sweep/runtimes/{name}.py"
        )
    return importlib.import_module(f"{__name__}.{name}")

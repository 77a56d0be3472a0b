"""Runtimes, one file each; the file's name is its registration.

A runtime `runtimes/<name>.py` holds

    RUNTIME      its traits, a literal that is read without importing it: see bridge/runtimes.py
    available()  None, or why this host cannot ("needs macOS"): what a stage asks before it loads; the planner, which does not
                 import the module, asks the function that `cannot` of the literal names
    load(params, inputs)  a Runtime
    functions(params, inputs, names)  the functions of a program with a key-value cache, {name: Runtime}; each with
                 `reset()`, which makes new `states`, and a prediction that goes on from those of the one before
"""

import importlib
from functools import cache
from pathlib import Path
from typing import Any

from ane_sweep.bridge import building, plugins
from ane_sweep.bridge.building import DECODE, PREFILL
from ane_sweep.bridge.runtimes import RUNTIMES
from ane_sweep.worker.runtimes import _batched, _decoding
from ane_sweep.worker.runtimes._runtime import Module, Runtime


def load(params: dict[str, Any], inputs: dict[str, Path]) -> Runtime:
    """The Runtime of `params["runtime"]`; with a cache its two functions driven as one, of a batch one input at a time, of
    a classifier its probabilities as numbers."""
    module, options = get(params["runtime"]), building.options(params)
    if options.cache != "none":
        functions = module.functions(params, inputs, (PREFILL, DECODE))
        return (_decoding.Decoding if options.cache == "stateful" else _decoding.ExplicitDecoding)(functions)
    loaded = module.load(params, inputs)
    if options.classes == "labels":
        return _batched.Classes(loaded)
    return loaded if options.batch == 1 else _batched.Batched(loaded, options.batch)


@cache
def get(name: str) -> Module:
    """Import a runtime's module. Raises ConfigError for an unknown name; a broken import inside one is not caught."""
    RUNTIMES[name]  # which knows what to say of an unknown one
    plugin = RUNTIMES.plugin_of(name)
    module: Any = plugins.imported(plugin) if plugin else importlib.import_module(f"{__name__}.{name}")
    return module

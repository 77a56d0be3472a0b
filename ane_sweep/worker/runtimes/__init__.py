"""Runtimes, one file each; the file's name registers the runtime.

A runtime `runtimes/<name>.py`, or `programs/<name>/run.py` of a program kind, holds

    RUNTIME      its traits, a literal that is read without importing it: see bridge/runtimes.py
    available()  if the module has it: None, or a further reason why this host cannot run it. The planner does not import
                 the module; it calls the function named by `cannot` in the literal, and stages call both before loading
    load(params, inputs)  a Runtime
    functions(params, inputs, names)  the functions of a program with a key-value cache, {name: Runtime}; each with
                 `reset()`, which makes new `states`; a prediction continues from the states of the previous one
"""

import importlib
from functools import cache
from pathlib import Path

from ane_sweep.bridge import building, plugins
from ane_sweep.bridge.building import DECODE, PREFILL
from ane_sweep.bridge.runtimes import RUNTIMES, cannot
from ane_sweep.errors import Unavailable
from ane_sweep.worker.params import RuntimeParams
from ane_sweep.worker.runtimes import _wrappers
from ane_sweep.worker.runtimes._runtime import Module, Runtime


def check_available(name: str) -> None:
    """Raise Unavailable if this host cannot run a runtime."""
    own = getattr(get(name), "available", None)
    if reason := cannot(name) or (own and own()):
        raise Unavailable(f"runtime={name} {reason}")


def load(params: dict[str, object], inputs: dict[str, Path]) -> Runtime:
    """Load the runtime that params name, with an interface for one input at a time and arrays as outputs.

    A program with a cache is driven through both of its functions, a batch is fed one input at a time, and a
    classifier's probabilities become numbers.
    """
    module, options = get(RuntimeParams.read(params).runtime), building.options(params)
    if options.cache != "none":
        functions = module.functions(params, inputs, (PREFILL, DECODE))
        return (_wrappers.Decoding if options.cache == "stateful" else _wrappers.ExplicitDecoding)(functions)
    loaded = module.load(params, inputs)
    if options.classes == "labels":
        return _wrappers.Classes(loaded)
    return loaded if options.batch == 1 else _wrappers.Batched(loaded, options.batch)


@cache
def get(name: str) -> Module:
    """Import a runtime's module. Raises ConfigError for an unknown name; a broken import inside one is not caught."""
    RUNTIMES[name]  # raises the ConfigError of an unknown name
    plugin = RUNTIMES.plugin_of(name)
    module: Module = plugins.import_plugin(plugin) if plugin else importlib.import_module(RUNTIMES.module_of(name))
    return module

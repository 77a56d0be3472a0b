"""A module and its ports from a task's params, whatever family it is of and whoever wrote it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ane_sweep.bridge import building
from ane_sweep.bridge.building import PREFILL, Options
from ane_sweep.worker import models
from ane_sweep.worker.models import _classes, weights
from ane_sweep.worker.models._ports import Ports


def build(params: dict[str, Any], inputs: dict[str, Path], variant: str) -> tuple[Any, Callable[..., Any]]:
    """(module, what gives its ports). Raises WeightsError; of a family that is built of given code, StageError."""
    family, options = models.get(params["model"]["family"]), building.options(params)
    if hasattr(family, "given"):
        module = family.given(params, inputs)
        return module, lambda: module.ports
    state = weights.load_state(params["weights"], inputs.get("checkpoint"), params["model"])
    module = family.VARIANTS[variant](params["model"], state, params["seq_len"], options)
    ports = partial(family.ports, params["model"], params["seq_len"], options)
    if options.classes == "labels":
        return _classes.Probabilities(module).eval(), lambda: _classes.ports(ports())
    if options.cache == "explicit":
        return module, lambda function=PREFILL: module.with_caches(ports(function=function), function)
    return module, partial(_batched, ports, options)


def _batched(ports: Callable[..., Ports], options: Options, **which: Any) -> Ports:
    made = ports(**which)
    return made if options.batch == 1 else made.of(options.batch)

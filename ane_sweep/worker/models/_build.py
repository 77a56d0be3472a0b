"""Building of a task's module and its ports, for models of every family."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from ane_sweep.bridge import building
from ane_sweep.bridge.building import PREFILL, Options
from ane_sweep.worker import models
from ane_sweep.worker.models import _classes, weights
from ane_sweep.worker.models._ports import Ports
from ane_sweep.worker.models._types import Dynamic


def build(
    params: dict[str, Any], inputs: dict[str, Path], variant: str, *, lazy: bool = False
) -> tuple[Any, Callable[..., Any]]:
    """Return the module and a function that returns its ports.

    lazy   the weights are read when they are used, if the family allows it

    Raises WeightsError; StageError for a model of the user's own.
    """
    family, options = models.get(params["model"]["family"]), building.options(params)
    if hasattr(family, "build_given"):
        module = family.build_given(params, inputs)
        return module, lambda: module.ports

    def build_variant(lazy: bool) -> nn.Module:
        state = weights.load_state(params["weights"], inputs.get("checkpoint"), params["model"], lazy=lazy)
        return family.VARIANTS[variant](params["model"], state, params["seq_len"], options)

    try:
        module = build_variant(lazy)
    except (NotImplementedError, RuntimeError, TypeError):
        if not lazy:
            raise
        module = build_variant(False)  # the family computes with its weights while it builds
    ports = partial(family.ports, params["model"], params["seq_len"], options)
    if options.classes == "labels":
        return _classes.Probabilities(module).eval(), lambda: _classes.name_ports(ports())
    if options.cache == "explicit":
        explicit: Dynamic = module
        return module, lambda function=PREFILL: explicit.with_caches(ports(function=function), function)
    return module, partial(_batch_ports, ports, options)


def _batch_ports(ports: Callable[..., Ports], options: Options, **function: str) -> Ports:
    return ports(**function) if options.batch == 1 else ports(**function).with_batch(options.batch)

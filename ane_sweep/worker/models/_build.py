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


def build(
    params: dict[str, Any], inputs: dict[str, Path], variant: str, *, lazy: bool = False
) -> tuple[Any, Callable[..., Any]]:
    """(module, what gives its ports). Raises WeightsError; of a family that is built of given code, StageError.

    lazy   of weights that are read when they are asked for, where the family is built of a checkpoint and can be
    """
    family, options = models.get(params["model"]["family"]), building.options(params)
    if hasattr(family, "given"):
        module = family.given(params, inputs)
        return module, lambda: module.ports

    def made(lazy: bool) -> Any:
        state = weights.load_state(params["weights"], inputs.get("checkpoint"), params["model"], lazy=lazy)
        return family.VARIANTS[variant](params["model"], state, params["seq_len"], options)

    try:
        module = made(lazy)
    except (NotImplementedError, RuntimeError, TypeError):
        if not lazy:
            raise
        module = made(False)  # a family that does to its weights what a tensor without numbers cannot bear
    ports = partial(family.ports, params["model"], params["seq_len"], options)
    if options.classes == "labels":
        return _classes.Probabilities(module).eval(), lambda: _classes.ports(ports())
    if options.cache == "explicit":
        return module, lambda function=PREFILL: module.with_caches(ports(function=function), function)
    return module, partial(_batched, ports, options)


def _batched(ports: Callable[..., Ports], options: Options, **which: Any) -> Ports:
    made = ports(**which)
    return made if options.batch == 1 else made.of(options.batch)

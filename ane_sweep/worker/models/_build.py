"""Building of a task's module and its ports, for models of every family."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ane_sweep.bridge import building
from ane_sweep.bridge.building import PREFILL
from ane_sweep.worker import models
from ane_sweep.worker.models import weights
from ane_sweep.worker.models._ports import Port, Ports
from ane_sweep.worker.models._types import Dynamic

PROBABILITIES = "probabilities"
CLASS = "classLabel"


def build(
    params: dict[str, Any], inputs: dict[str, Path], variant: str, *, lazy: bool = False
) -> tuple[Any, Callable[..., Any]]:
    """Return the module and a function that returns its ports.

    lazy   the weights are read on first use, if the family allows that

    Raises WeightsError; StageError for a model of the user's own.
    """
    family, options = models.get(params["model"]["family"]), building.options(params)
    if hasattr(family, "build_given"):
        module = family.build_given(params, inputs)
        return module, lambda: module.ports

    def build_variant(lazy: bool) -> nn.Module:
        state = weights.load_state(params["weights"], inputs.get("checkpoint"), params["model"], lazy=lazy)
        module: nn.Module = family.VARIANTS[variant](params["model"], state, params["seq_len"], options)
        return module.eval()

    try:
        module = build_variant(lazy)
    except (NotImplementedError, RuntimeError, TypeError):
        if not lazy:
            raise
        module = build_variant(False)  # the family computes with its weights while it builds
    ports = partial(family.ports, params["model"], params["seq_len"], options)
    if options.classes == "labels":
        made = ports()
        named = tuple(Port(PROBABILITIES, port.shape, port.dtype) for port in made.outputs)
        return Probabilities(module).eval(), lambda: Ports(made.inputs, named)
    if options.cache == "explicit":
        explicit: Dynamic = module
        return module, lambda function=PREFILL: explicit.with_caches(ports(function=function), function)
    return module, ports if options.batch == 1 else lambda **function: ports(**function).with_batch(options.batch)


class Probabilities(nn.Module):
    """classes=labels: the softmax of the logits that `inner` returns as its only output.

    The program also has its class's name, as Hugging Face's exporters wrote it (experiments-coreml-ane-distilbert, "Testing
    exported models"). In PyTorch it returns the probabilities alone.
    """

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    @property
    def hf(self) -> nn.Module:
        return self.inner.get_submodule("hf")

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return (self.inner(*inputs)[0].softmax(dim=-1),)


def class_names(arch: Mapping[str, object], count: int) -> list[str]:
    """Return the names of the classes: `id2label` in config.json, and transformers' LABEL_n for missing ones."""
    known = arch.get("id2label")
    given = {str(key): str(value) for key, value in known.items()} if isinstance(known, Mapping) else {}
    return [given.get(str(index), f"LABEL_{index}") for index in range(count)]

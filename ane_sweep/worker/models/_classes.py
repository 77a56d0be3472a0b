"""classes=labels: a classifier that leaves probabilities and its class's name, as Hugging Face's exporters wrote it
(experiments-coreml-ane-distilbert, "Testing exported models"). In PyTorch it leaves the probabilities alone.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ane_sweep.worker.models._ports import Port, Ports

PROBABILITIES = "probabilities"
CLASS = "classLabel"


class Probabilities(nn.Module):
    """Of the one output of `inner`, its logits."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    @property
    def hf(self) -> nn.Module:
        return self.inner.hf

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return (self.inner(*inputs)[0].softmax(dim=-1),)


def ports(made: Ports) -> Ports:
    return Ports(made.inputs, tuple(Port(PROBABILITIES, port.shape, port.dtype) for port in made.outputs))


def names(arch: Mapping[str, Any], count: int) -> list[str]:
    """Of the classes, as the checkpoint has them (`id2label` of config.json), else as transformers would."""
    given = {str(key): str(value) for key, value in (arch.get("id2label") or {}).items()}
    return [given.get(str(index), f"LABEL_{index}") for index in range(count)]

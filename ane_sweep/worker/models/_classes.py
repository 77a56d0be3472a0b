"""classes=labels: a classifier that returns probabilities and its class's name, as Hugging Face's exporters wrote it
(experiments-coreml-ane-distilbert, "Testing exported models"). In PyTorch it returns the probabilities alone.
"""

from collections.abc import Mapping

from torch import Tensor, nn

from ane_sweep.worker.models._ports import Port, Ports

PROBABILITIES = "probabilities"
CLASS = "classLabel"


class Probabilities(nn.Module):
    """The softmax of the logits that `inner` returns as its only output."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    @property
    def hf(self) -> nn.Module:
        return self.inner.get_submodule("hf")

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return (self.inner(*inputs)[0].softmax(dim=-1),)


def name_ports(made: Ports) -> Ports:
    return Ports(made.inputs, tuple(Port(PROBABILITIES, port.shape, port.dtype) for port in made.outputs))


def class_names(arch: Mapping[str, object], count: int) -> list[str]:
    """Return the names of the classes: those of `id2label` in config.json, and transformers' LABEL_n for the rest."""
    known = arch.get("id2label")
    given = {str(key): str(value) for key, value in known.items()} if isinstance(known, Mapping) else {}
    return [given.get(str(index), f"LABEL_{index}") for index in range(count)]

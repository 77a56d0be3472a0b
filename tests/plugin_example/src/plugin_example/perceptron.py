"""Linear layers with ReLU between them."""

from typing import Any

import torch
from torch import nn

from ane_sweep.worker.models import _hf
from ane_sweep.worker.models._ports import Port, Ports


class Layers(nn.Module):
    """The parameters, as a checkpoint names them."""

    def __init__(self, arch: dict[str, Any]):
        super().__init__()
        width = arch["hidden_size"]
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(arch["num_hidden_layers"])])


def skeleton(model: dict[str, Any]) -> nn.Module:
    return Layers(model["arch"])


def ports(model: dict[str, Any], seq_len: int, options: Any = None) -> Ports:
    """x (1, S, C) to y (1, S, C)."""
    shape = (1, seq_len, model["arch"]["hidden_size"])
    return Ports((Port("x", shape, "float32"),), (Port("y", shape, "float32"),))


class Perceptron(nn.Module):
    def __init__(self, model: dict[str, Any], state: dict[str, torch.Tensor]):
        super().__init__()
        self.inner = _hf.build_filled(lambda: skeleton(model), state)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        for layer in self.inner.layers:
            x = x + torch.relu(layer(x))
        return (x,)


def _original(model, state, seq_len, options=None) -> nn.Module:
    return Perceptron(model, state)


VARIANTS = {"original": _original}

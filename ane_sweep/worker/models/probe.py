"""Probe: blocks x + down(gelu(up(x))) of any width and depth, to find the limits of a machine. Not a trained model.

The notebooks' test nets: linear, GELU, linear, with about as many parameters as the model in question, or small and
hundreds of layers deep (more-ane-transformers notes, 30 March 2023). The branches are scaled by 1 / sqrt(blocks), so
that neither width nor depth moves the numbers out of fp16's range.

arch  hidden_size, intermediate_size, num_hidden_layers (blocks; each is two layers)
"""

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.worker.models import _hf
from ane_sweep.worker.models._ports import Port, Ports
from ane_sweep.worker.models._types import Model


class ProbeWeights(nn.Module):
    """The parameters, as linear layers."""

    def __init__(self, arch: dict[str, int]):
        super().__init__()
        width, wide = arch["hidden_size"], arch["intermediate_size"]
        self.up = nn.ModuleList([nn.Linear(width, wide) for _ in range(arch["num_hidden_layers"])])
        self.down = nn.ModuleList([nn.Linear(wide, width) for _ in range(arch["num_hidden_layers"])])


def skeleton(model: Model) -> nn.Module:
    return ProbeWeights(model["arch"])


def ports(model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
    """Return the ports x (1, S, C) and y (1, S, C)."""
    shape = (1, seq_len, model["arch"]["hidden_size"])
    return Ports((Port("x", shape, "float32"),), (Port("y", shape, "float32"),))


class Probe(nn.Module):
    """The net of linear layers over (1, S, C), or with `channels_first` of 1x1 convolutions over (1, C, 1, S)."""

    blocks: ProbeWeights

    def __init__(
        self,
        model: Model,
        state: dict[str, torch.Tensor],
        seq_len: int,
        options: Options = PLAIN,
        *,
        channels_first: bool,
    ):
        super().__init__()
        scale = model["arch"]["num_hidden_layers"] ** -0.5
        scaled = {name: tensor * scale if name.startswith("down.") else tensor for name, tensor in state.items()}
        self.blocks = _hf.build_filled(lambda: ProbeWeights(model["arch"]), scaled)
        self.channels_first = channels_first

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        if self.channels_first:
            x = x.transpose(1, 2).unsqueeze(2)
        for up, down in zip(self.blocks.up, self.blocks.down, strict=True):
            assert isinstance(up, nn.Linear) and isinstance(down, nn.Linear)
            x = x + self._layer(down, functional.gelu(self._layer(up, x)))
        return (x.squeeze(2).transpose(1, 2) if self.channels_first else x,)

    def _layer(self, linear: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        if not self.channels_first:
            return linear(x)
        return functional.conv2d(x, linear.weight[:, :, None, None], linear.bias)


VARIANTS = {"original": partial(Probe, channels_first=False), "split_einsum": partial(Probe, channels_first=True)}

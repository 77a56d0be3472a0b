"""Nets that show the effect of each tip of a model surgeon (coreml102, "Model Surgery Tips"): one net follows it, one
does not.

Task: features. Each net puts the tip's operation between two layers of linear, GELU, linear; there is nothing to train.

arch  tip: its name; followed: true if the net follows it; width: that of the layers

    tip       followed, or not
    static    the positions of a slice are constants, or an input
    padding   the mean of the positions below an input count multiplies the others by 0 at full length, or cuts them off,
              which makes a shape that varies
    float     the last input, a scale, is a number, or an integer
    epsilon   a norm of small values has 1e-5, or BERT's 1e-12, which fp16 does not hold
    bigger    there are more than 64 values, or 8
    lopsided  one axis of 50,000 is 200 by 250, or undivided
    sine      a sine of the positions is looked up in a constant, or computed from the values
    argsort   the order of the positions is constant, or follows the values of the first channel
    pad       the last axis is 128, or 100
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.worker.models import _hf
from ane_sweep.worker.models._ports import NUMBERS, Port, Ports, Seeded
from ane_sweep.worker.models._types import Model

TIPS = ("static", "padding", "float", "epsilon", "bigger", "lopsided", "sine", "argsort", "pad")
LONG, PIECES = 50_000, 200
TAKEN = 16  # positions of a slice
SMALL = 1e-3  # factor on the values of `epsilon`: their variance is some 1e-6


class Layers(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.before, self.after = (
            nn.ModuleList([nn.Linear(width, 4 * width), nn.Linear(4 * width, width)]) for _ in "12"
        )


def _sizes(model: Model, seq_len: int) -> tuple[int, int]:
    """Return (channels, positions) of the input."""
    arch = model["arch"]
    tip, followed = arch["tip"], arch["followed"]
    if tip == "bigger":
        return (arch["width"], seq_len) if followed else (8, 1)
    if tip == "lopsided":
        return (PIECES, LONG // PIECES) if followed else (1, LONG)
    return arch["width"], {True: 128, False: 100}[followed] if tip == "pad" else seq_len


def skeleton(model: Model) -> Layers:
    """Build the net's layers for a tip (see the module's docstring). Raises ValueError for an unknown tip."""
    if model["arch"]["tip"] not in TIPS:
        raise ValueError(f"no tip {model['arch']['tip']!r}; known: {', '.join(TIPS)}")
    return Layers(_sizes(model, 1)[0])


def ports(model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
    """Return the ports x (1, C, 1, S) and y; some tips have a second input of shape (1,)."""
    arch = model["arch"]
    channels, length = _sizes(model, seq_len)
    inputs = [Port("x", (1, channels, 1, length), "float32", seeded=NUMBERS)]
    if arch["tip"] == "static" and not arch["followed"]:
        inputs.append(Port("place", (1,), "int32", seeded=Seeded(0.0, max(0.0, length - TAKEN), tiled=False)))
    if arch["tip"] == "float":
        inputs.append(
            Port("number", (1,), "float32" if arch["followed"] else "int32", seeded=Seeded(0.0, 60.0, tiled=False))
        )
    if arch["tip"] == "padding":
        dtype = "float32" if arch["followed"] else "int32"
        inputs.append(Port("count", (1,), dtype, seeded=Seeded(1.0, float(length), tiled=False)))
    left = min(TAKEN, length) if arch["tip"] == "static" else length
    return Ports(tuple(inputs), (Port("y", (1, channels, 1, left), "float32"),))


class Net(nn.Module):
    """Layers, the tip's operation, and layers."""

    layers: Layers
    table: Tensor
    steps: Tensor
    places: Tensor

    def __init__(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN):
        super().__init__()
        length = _sizes(model, seq_len)[1]
        self.layers = _hf.build_filled(lambda: skeleton(model), state)
        self.tip, self.followed = model["arch"]["tip"], model["arch"]["followed"]
        self.register_buffer("table", torch.arange(length).float().sin()[None, None, None], persistent=False)
        self.register_buffer("steps", torch.arange(min(TAKEN, length)), persistent=False)
        self.register_buffer("places", torch.arange(length), persistent=False)

    def forward(self, x: Tensor, more: Tensor | None = None) -> tuple[Tensor]:
        return (self._part(self.layers.after, self._tip(self._part(self.layers.before, x), more)),)

    def _part(self, layers: nn.ModuleList, x: Tensor) -> Tensor:
        up, down = (layer for layer in layers if isinstance(layer, nn.Linear))
        wide = functional.gelu(functional.conv2d(x, up.weight[:, :, None, None], up.bias))
        return x + functional.conv2d(wide, down.weight[:, :, None, None], down.bias)

    def _tip(self, x: Tensor, more: Tensor | None) -> Tensor:
        if self.tip == "static":
            return x.index_select(3, self.steps if more is None else self.steps + more)
        if self.tip == "float" and more is not None:
            return x * (1.0 + more.float() / 64.0)
        if self.tip == "padding" and more is not None:
            part = x * (more - self.places).clamp(0.0, 1.0) if self.followed else x[..., : more[0]]
            return x + part.sum(dim=3, keepdim=True) / more
        if self.tip == "epsilon":
            x = SMALL * x
            centred = x - x.mean(dim=1, keepdim=True)
            variance = centred.square().mean(dim=1, keepdim=True)
            return centred * torch.rsqrt(variance + (1e-5 if self.followed else 1e-12))
        if self.tip == "argsort":
            return x.index_select(3, self.places.flip(0) if self.followed else x[0, 0, 0].argsort())
        if self.tip == "sine":
            return x + (self.table if self.followed else x.sin())
        return x


VARIANTS = {"original": Net}

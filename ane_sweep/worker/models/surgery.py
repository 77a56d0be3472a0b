"""Nets that show what each tip of a model surgeon changes (coreml102, "Model Surgery Tips"): one that follows it, one that does
not. Task: features. Both are what the tip is about between two layers of linear, GELU, linear; there is nothing to train.

arch  tip; followed: whether the net follows it; width of the layers

    static    which positions are taken: known when it is converted, or an input
    padding   a mean of the positions below an input count: the others multiplied by 0 at full length, or cut off, which
              makes a shape that varies
    float     the last input: numbers, or integers that nothing but a scale comes of
    epsilon   of a norm of small values: 1e-5, or BERT's 1e-12, which fp16 does not hold
    bigger    more than 64 values, or 8
    lopsided  one axis of 50,000 as 200 by 250, or as it is
    sine      a sine of the positions: looked up in a constant, or computed of the values
    argsort   the order of the positions: known when it is converted, or by the values of the first channel
    pad       the last axis: 128, or 100
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ane_sweep.worker.models import _hf
from ane_sweep.worker.models._ports import NUMBERS, Port, Ports, Seeded

IGNORED = ()
TIPS = ("static", "padding", "float", "epsilon", "bigger", "lopsided", "sine", "argsort", "pad")
LONG, PIECES = 50_000, 200
TAKEN = 16  # positions of a slice
SMALL = 1e-3  # what the values of `epsilon` are multiplied by: their variance is some 1e-6


class Layers(nn.Module):
    base_model_prefix = "surgery"
    all_tied_weights_keys: dict[str, str] = {}

    def __init__(self, width: int):
        super().__init__()
        self.before, self.after = (
            nn.ModuleList([nn.Linear(width, 4 * width), nn.Linear(4 * width, width)]) for _ in "12"
        )

    def tie_weights(self) -> None:
        """Nothing is tied."""


def _sizes(arch: dict[str, Any], seq_len: int) -> tuple[int, int]:
    """(channels, positions) of the input."""
    tip, followed = arch["tip"], arch["followed"]
    if tip == "bigger":
        return (arch["width"], seq_len) if followed else (8, 1)
    if tip == "lopsided":
        return (PIECES, LONG // PIECES) if followed else (1, LONG)
    return arch["width"], {True: 128, False: 100}[followed] if tip == "pad" else seq_len


def skeleton(model: dict[str, Any]) -> nn.Module:
    """Raises ValueError for an unknown tip."""
    if model["arch"]["tip"] not in TIPS:
        raise ValueError(f"no tip {model['arch']['tip']!r}; known: {', '.join(TIPS)}")
    return Layers(_sizes(model["arch"], 1)[0])


def ports(model: dict[str, Any], seq_len: int, options: Any = None) -> Ports:
    """x (1, C, 1, S) to y; some tips have a second input of shape (1,)."""
    arch = model["arch"]
    channels, length = _sizes(arch, seq_len)
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
    def __init__(self, model: dict[str, Any], state: dict[str, Tensor], length: int):
        super().__init__()
        self.layers = _hf.filled(lambda: skeleton(model), state)
        self.tip, self.followed = model["arch"]["tip"], model["arch"]["followed"]
        self.register_buffer("table", torch.arange(length).float().sin()[None, None, None], persistent=False)
        self.register_buffer("steps", torch.arange(min(TAKEN, length)), persistent=False)
        self.register_buffer("places", torch.arange(length), persistent=False)

    def forward(self, x: Tensor, more: Tensor | None = None) -> tuple[Tensor]:
        return (self._part(self.layers.after, self._tip(self._part(self.layers.before, x), more)),)

    def _part(self, layers: nn.ModuleList, x: Tensor) -> Tensor:
        up, down = ((layer.weight[:, :, None, None], layer.bias) for layer in layers)
        return x + functional.conv2d(functional.gelu(functional.conv2d(x, *up)), *down)

    def _tip(self, x: Tensor, more: Tensor | None) -> Tensor:
        if self.tip == "static":
            return x.index_select(3, self.steps if more is None else self.steps + more)
        if self.tip == "float":
            return x * (1.0 + more.float() / 64.0)
        if self.tip == "padding":
            kept = x * (more - self.places).clamp(0.0, 1.0) if self.followed else x[..., : more[0]]
            return x + kept.sum(dim=3, keepdim=True) / more
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


def _net(model, state, seq_len, options=None) -> nn.Module:
    return Net(model, state, _sizes(model["arch"], seq_len)[1]).eval()


VARIANTS = {"original": _net}

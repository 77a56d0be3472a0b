"""A pre-norm encoder of inputs of fixed size: images (ViT, CLIP), spectra (Whisper), texts of a fixed length (CLIP).

The output is either every position, (1, S, C), or the output of a head on one of them, (1, C).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.worker.models import _ane, _hf
from ane_sweep.worker.models._family import Family
from ane_sweep.worker.models._types import Model


@dataclass(frozen=True)
class BlockNames:
    """The names of a block's tensors: query, key, value, out; up, down; the norm of either of the two."""

    attention: tuple[str, str, str, str]
    feed_forward: tuple[str, str]
    norms: tuple[str, str]

    def layer(self, read: _ane.Reader, heads: int, eps: float, activation: str, wiring: str = "pre") -> _ane.Layer:
        query, key, value, out = (read.conv(name) for name in self.attention)
        up, down = (read.conv(name) for name in self.feed_forward)
        first, second = (read.layer_norm(name, eps) for name in self.norms)
        scale = (query.weight.shape[0] // heads) ** -0.5
        feed_forward = _ane.FeedForward(up, down, activation)
        return _ane.Layer(first, _ane.Attention(query, key, value, out, heads, scale), second, feed_forward, wiring)


class TowerFamily(Family):
    """A family of modules with one input and one output, of sizes that the architecture gives."""

    def original(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build Hugging Face's module with its own layers; a tower of texts is given the causal mask ready."""
        ports = self.ports(model, seq_len)
        (source,), (output,) = ports.inputs, ports.outputs
        mask = _hf.make_causal_mask(source.shape[1]) if source.dtype == "int32" else None
        hf = _hf.build_filled(lambda: self.skeleton(model), state)
        return OriginalTower(hf, source.name, output.name, mask).eval()


class OriginalTower(nn.Module):
    """The Hugging Face module with the input `takes`, the output `gives`, and a mask if it needs one."""

    mask: Tensor | None

    def __init__(self, hf: nn.Module, takes: str, gives: str, mask: Tensor | None = None):
        super().__init__()
        self.hf, self.takes, self.gives = hf, takes, gives
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        more = {} if self.mask is None else {"attention_mask": self.mask}
        return (self.hf(**{self.takes: inputs}, **more)[self.gives],)


class Patches(nn.Module):
    """Patch embedding of pixels (1, 3, H, W) -> (1, C, 1, 1 + patches): the class position, then the patches row by row."""

    def __init__(self, weight: Tensor, bias: Tensor | None, first: Tensor, positions: Tensor):
        """Build from weight (C, 3, p, p), first (C,), positions (1 + patches, C)."""
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        added = positions.t()[None, :, None, :].contiguous()
        self.first = nn.Parameter(added[..., :1] + first[None, :, None, None], requires_grad=False)
        self.positions = nn.Parameter(added[..., 1:], requires_grad=False)

    def forward(self, pixels: Tensor) -> Tensor:
        x = F.conv2d(pixels, self.weight, self.bias, stride=self.weight.shape[2:])
        return torch.cat([self.first, x.flatten(2).unsqueeze(2) + self.positions], dim=3)


class Tower(nn.Module):
    """An encoder on (1, C, 1, S): embedding, blocks, norm; with a `head`, on the first position alone."""

    def __init__(self, embedding: nn.Module, layers: list[_ane.Layer], norm: nn.Module, head: nn.Module | None = None):
        super().__init__()
        self.embedding, self.layers, self.norm, self.head = embedding, nn.ModuleList(layers), norm, head

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        x = self.embedding(inputs)
        for layer in self.layers:
            x = layer(x, *self.masks())
        if self.head is None:
            return (_ane.to_sequence(self.norm(x)),)
        return (self.head(self.norm(self.pick_position(inputs, x))).squeeze(3).squeeze(2),)

    def masks(self) -> tuple[Tensor, ...]:
        """Return the masks that are added to the scores of every block."""
        return ()

    def pick_position(self, inputs: Tensor, x: Tensor) -> Tensor:
        """Return the position (1, C, 1, 1) that the head reads."""
        return x[..., :1]

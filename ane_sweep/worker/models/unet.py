"""The UNet of Stable Diffusion 1 from `diffusers` (extra: diffusion). Task: denoiser. Weights: random.

    sample (2,4,H,W), timestep (2,), encoder_hidden_states (2,768,1,77) -> noise_pred (2,4,H,W)

A batch of two: with and without the text, for guidance. `original` is diffusers' module unchanged. In `split_einsum`
its transformers are channels-first and compute head by head; in `split_einsum_v2` each head's queries are also split
into parts of 512. The forms are those that apple/ml-stable-diffusion named and described; the code is ours.

arch  the arguments of diffusers' UNet2DConditionModel
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.worker.models import _ane, _hf
from ane_sweep.worker.models._ports import NUMBERS, Port, Ports, Seeded
from ane_sweep.worker.models._types import Dynamic, Model

ROWS, WORDS = 2, 77
STEPS = Seeded(0.0, 999.0, tiled=False)
PART = 512  # queries at once
MakeSpatial = Callable[[nn.Module], nn.Module]


def skeleton(model: Model) -> nn.Module:
    """Build diffusers' UNet2DConditionModel, with attention in plain ops."""
    try:
        import diffusers
        from diffusers.models.attention_processor import AttnProcessor
    except ImportError as error:
        raise ValueError(
            f"the UNet is built by diffusers, which is not here ({error}): pip install 'ane-sweep[diffusion]'"
        ) from None

    arch = {key: value for key, value in model["arch"].items() if key != "layers"}
    module: Any = diffusers.UNet2DConditionModel
    module = module(**arch)
    module.set_attn_processor(AttnProcessor())
    return module


def ports(model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
    arch = model["arch"]
    image = (ROWS, arch["in_channels"], arch["sample_size"], arch["sample_size"])
    return Ports(
        (
            Port("sample", image, "float32", seeded=NUMBERS),
            Port("timestep", (ROWS,), "float32", seeded=STEPS),
            Port("encoder_hidden_states", (ROWS, arch["cross_attention_dim"], 1, WORDS), "float32", seeded=NUMBERS),
        ),
        (Port("noise_pred", (ROWS, arch["out_channels"], *image[2:]), "float32"),),
    )


class Unet(nn.Module):
    """The UNet of diffusers; `spatial` replaces each of its transformers, which would take (B, 77, C)."""

    def __init__(
        self,
        model: Model,
        state: dict[str, Tensor],
        seq_len: int,
        options: Options = PLAIN,
        *,
        spatial: MakeSpatial | None = None,
    ):
        super().__init__()
        unet = _hf.build_filled(lambda: skeleton(model), state)
        self.unet, self.turned = unet, spatial is None
        if spatial is not None:
            for name in [name for name, part in unet.named_modules() if type(part).__name__ == "Transformer2DModel"]:
                unet.set_submodule(name, spatial(unet.get_submodule(name)))

    def forward(self, sample: Tensor, timestep: Tensor, words: Tensor) -> tuple[Tensor, ...]:
        words = words.squeeze(2).transpose(1, 2) if self.turned else words
        return self.unet(sample, timestep, words, return_dict=False)


class UnetAttention(nn.Module):
    """Attention of (B, C, 1, S) to itself or to text (B, C', 1, 77), head by head."""

    def __init__(self, part: Dynamic, in_parts: bool):
        super().__init__()
        self.query, self.key, self.value = (_conv(layer) for layer in (part.to_q, part.to_k, part.to_v))
        self.out, self.in_parts = _conv(part.to_out[0]), in_parts
        self.heads: int = part.heads
        self.scale: float = part.scale

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        query, key, value = self.query(x), self.key(source).transpose(1, 3), self.value(source)
        width = query.shape[1] // self.heads
        each = zip(query.split(width, dim=1), key.split(width, dim=3), value.split(width, dim=1))
        return self.out(torch.cat([self._head(q, k, v) for q, k, v in each], dim=1))

    def _head(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        cut = query.split(PART, dim=3) if self.in_parts and query.shape[3] > PART else (query,)
        made = []
        for part in cut:
            weights = (torch.einsum("bchq,bkhc->bkhq", part, key) * self.scale).softmax(dim=1)
            made.append(torch.einsum("bkhq,bchk->bchq", weights, value))
        return made[0] if len(made) == 1 else torch.cat(made, dim=3)


class UnetBlock(nn.Module):
    """A block: attention to the picture, attention to the text, a gated feed-forward, each after a norm."""

    def __init__(self, block: Dynamic, in_parts: bool):
        super().__init__()
        norms = (block.norm1, block.norm2, block.norm3)
        self.norms = nn.ModuleList([_ane.LayerNorm(norm.weight, norm.bias, norm.eps) for norm in norms])
        self.own, self.cross = UnetAttention(block.attn1, in_parts), UnetAttention(block.attn2, in_parts)
        self.up, self.down = _conv(block.ff.net[0].proj), _conv(block.ff.net[2])

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        normed = self.norms[0](x)
        x = self.own(normed, normed) + x
        x = self.cross(self.norms[1](x), words) + x
        value, gate = self.up(self.norms[2](x)).chunk(2, dim=1)
        return self.down(value * F.gelu(gate)) + x


class Spatial(nn.Module):
    """A replacement of Transformer2DModel with the same call: (B, C, H, W) through blocks on (B, C, 1, H W)."""

    def __init__(self, part: Dynamic, in_parts: bool = False):
        super().__init__()
        self.norm, self.into, self.out = part.norm, part.proj_in, part.proj_out
        self.blocks = nn.ModuleList([UnetBlock(block, in_parts) for block in part.transformer_blocks])

    def forward(self, x: Tensor, encoder_hidden_states: Tensor, **unused: object) -> tuple[Tensor]:
        flat = self.into(self.norm(x)).flatten(2).unsqueeze(2)
        for block in self.blocks:
            flat = block(flat, encoder_hidden_states)
        return (self.out(flat.reshape(x.shape)) + x,)


def _conv(linear: nn.Linear) -> _ane.Conv1x1:
    return _ane.Conv1x1(linear.weight, linear.bias)


VARIANTS = {
    "original": Unet,
    "split_einsum": partial(Unet, spatial=Spatial),
    "split_einsum_v2": partial(Unet, spatial=partial(Spatial, in_parts=True)),
}

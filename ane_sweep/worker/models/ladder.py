"""Apple's reference transformer (apple/ml-ane-transformers, its module `reference`): a post-norm encoder and decoder.

The caller looks up the embeddings; masks and positions are inputs. Task: features. No trained weights exist.

    encoder_input, decoder_input, and the positions of either   (B, C, 1, S), channels first in both variants
    *_k_mask (B, S, 1, 1), *_qk_mask (B, S, 1, S)                added to the scores: zeros here, as in Apple's own test
    -> decoder_output, encoder_output                           (B, C, 1, S)

more-ane-transformers (notes of 28 March 2023) scaled it up to the sizes of GPT-2 and counted its ops: 2.7k, 6k, 10.3k and
16.5k. The code is ours; as in Apple's, each head's scores are scaled after the product and take each mask by itself.

arch  embed_dim, ffn_dim, nb_attention_heads, nb_enc_layers, nb_dec_layers, max_seq_len
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.worker.models import _ane, _hf
from ane_sweep.worker.models._ports import NUMBERS, Port, Ports, Seeded
from ane_sweep.worker.models._types import Model

EPS = 1e-5
ZEROS = Seeded(0.0, 0.0, tiled=False)
_SIDES = ("encoder", "decoder")


class AttentionWeights(nn.Module):
    """The parameters of an attention and the norm after it."""

    def __init__(self, width: int):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in "qkvo")
        self.norm = nn.LayerNorm(width, EPS)


class LayerWeights(nn.Module):
    def __init__(self, width: int, wide: int, crosses: bool):
        super().__init__()
        self.attention = AttentionWeights(width)
        if crosses:
            self.cross = AttentionWeights(width)
        self.up, self.down, self.norm = nn.Linear(width, wide), nn.Linear(wide, width), nn.LayerNorm(width, EPS)


class LadderWeights(nn.Module):
    """The parameters of the transformer, stored as linear layers."""

    base_model_prefix = "transformer"

    def __init__(self, arch: dict[str, int]):
        super().__init__()
        sizes = arch["embed_dim"], arch["ffn_dim"]
        self.encoder = nn.ModuleList([LayerWeights(*sizes, False) for _ in range(arch["nb_enc_layers"])])
        self.decoder = nn.ModuleList([LayerWeights(*sizes, True) for _ in range(arch["nb_dec_layers"])])
        self.norm = nn.LayerNorm(arch["embed_dim"], EPS)


def skeleton(model: Model) -> nn.Module:
    return LadderWeights(model["arch"])


def ports(model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
    hidden, keys, pairs = (1, model["arch"]["embed_dim"], 1, seq_len), (1, seq_len, 1, 1), (1, seq_len, 1, seq_len)
    inputs = [
        *(Port(f"{side}_input", hidden, "float32", seeded=NUMBERS) for side in _SIDES),
        *(Port(f"{side}_pos_embed", hidden, "float32", seeded=NUMBERS) for side in _SIDES),
        *(Port(f"{side}_k_mask", keys, "float32", seeded=ZEROS) for side in _SIDES),
        *(Port(f"{side}_qk_mask", pairs, "float32", seeded=ZEROS) for side in _SIDES),
    ]
    return Ports(tuple(inputs), tuple(Port(f"{side}_output", hidden, "float32") for side in reversed(_SIDES)))


class OriginalLadder(nn.Module):
    """The variant with hidden states (B, S, C) and all heads in one product.

    The other one has the same order of operations, and its own `linear`, `heads`, norms, and layout of hidden states
    (`inside`, `outside`).
    """

    blocks: LadderWeights

    def __init__(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN):
        super().__init__()
        self.blocks = _hf.build_filled(lambda: LadderWeights(model["arch"]), state)
        self.count = model["arch"]["nb_attention_heads"]
        self.scale = (model["arch"]["embed_dim"] // self.count) ** -0.5

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        made = dict(zip([f"{side}_{key}" for key in ("in", "pos", "k", "qk") for side in _SIDES], inputs, strict=True))
        x, y, before, after = (
            self.inside(made[name]) for name in ("encoder_in", "decoder_in", "encoder_pos", "decoder_pos")
        )
        for layer in self.blocks.encoder:
            assert isinstance(layer, LayerWeights)
            x = self.attend(layer.attention, x, x, before, before, made["encoder_qk"], made["encoder_k"])
            x = self.feed(layer, x)
        for layer in self.blocks.decoder:
            assert isinstance(layer, LayerWeights)
            y = self.attend(layer.attention, y, y, after, after, made["decoder_qk"], made["decoder_k"])
            y = self.attend(layer.cross, y, x, after, before, made["encoder_k"])
            y = self.feed(layer, y)
        return self.outside(self.blocks.norm(y)), self.outside(x)

    def attend(
        self, part: AttentionWeights, x: Tensor, source: Tensor, here: Tensor, there: Tensor, *masks: Tensor
    ) -> Tensor:
        query, key = self.linear(part.q, x + here), self.linear(part.k, source + there)
        return part.norm(self.linear(part.o, self.heads(query, key, self.linear(part.v, source), masks)) + x)

    def feed(self, layer: LayerWeights, x: Tensor) -> Tensor:
        return layer.norm(self.linear(layer.down, torch.relu(self.linear(layer.up, x))) + x)

    def inside(self, x: Tensor) -> Tensor:
        """Convert an input (B, C, 1, S) to the variant's layout."""
        return x.squeeze(2).transpose(1, 2)

    def outside(self, x: Tensor) -> Tensor:
        """Convert a hidden state back to (B, C, 1, S)."""
        return x.transpose(1, 2).unsqueeze(2)

    def linear(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return layer(x)

    def heads(self, query: Tensor, key: Tensor, value: Tensor, masks: tuple[Tensor, ...]) -> Tensor:
        rows, length, width = query.shape
        q, k, v = (x.view(rows, length, self.count, -1).transpose(1, 2) for x in (query, key, value))
        scores = q @ k.transpose(2, 3) * self.scale
        for mask in masks:
            scores = scores + mask.permute(0, 2, 3, 1)  # (B, 1, S_query or 1, S_key)
        return (scores.softmax(dim=3) @ v).transpose(1, 2).reshape(rows, length, width)


class SplitEinsumLadder(OriginalLadder):
    """The variant with hidden states (B, C, 1, S), head by head."""

    def __init__(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN):
        super().__init__(model, state, seq_len, options)
        for owner in self.blocks.modules():
            if isinstance(norm := getattr(owner, "norm", None), nn.LayerNorm):
                owner.register_module("norm", _ane.LayerNorm(norm.weight, norm.bias, EPS))

    def inside(self, x: Tensor) -> Tensor:
        return x

    def outside(self, x: Tensor) -> Tensor:
        return x

    def linear(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return F.conv2d(x, layer.weight[:, :, None, None], layer.bias)

    def heads(self, query: Tensor, key: Tensor, value: Tensor, masks: tuple[Tensor, ...]) -> Tensor:
        width = query.shape[1] // self.count
        parts = zip(query.split(width, dim=1), key.transpose(1, 3).split(width, dim=3), value.split(width, dim=1))
        return torch.cat([self._head(*part, masks) for part in parts], dim=1)

    def _head(self, q: Tensor, k: Tensor, v: Tensor, masks: tuple[Tensor, ...]) -> Tensor:
        scores = torch.einsum("bchq,bkhc->bkhq", q, k) * self.scale
        for mask in masks:
            scores = scores + mask
        return torch.einsum("bkhq,bchk->bchq", scores.softmax(dim=1), v)


VARIANTS = {"original": OriginalLadder, "split_einsum": SplitEinsumLadder}

"""BLOOM: no positions but ALiBi, a distance penalty on the scores, and a norm right after the lookup."""

import torch
from torch import nn

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _decoder, _layouts

IGNORED = ()


def _slopes(config) -> torch.Tensor:
    """One slope a head, (heads,): powers of 2^(-8/n) for n heads, n a power of 2; of 2n's odd ones for the others.

    Press et al., "Train Short, Test Long" (arXiv 2108.12409), and the authors' code for other numbers of heads.
    """
    heads = config.num_attention_heads
    whole = 1 << (heads.bit_length() - 1)
    slopes = [2 ** (-8 * (i + 1) / whole) for i in range(whole)]
    slopes += [2 ** (-8 * (2 * i + 1) / (2 * whole)) for i in range(heads - whole)]
    return torch.tensor(slopes)


class _Gelu(nn.Module):
    """BLOOM's GELU without the autograd function around it, which a trace records as Python."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from transformers.models.bloom.modeling_bloom import bloom_gelu_forward

        return bloom_gelu_forward(x)


def _ready(hf: nn.Module, seq_len: int) -> None:
    """Hugging Face derives ALiBi from a 2-D attention mask; with our 4-D one it gets the finished tensor."""
    alibi = _slopes(hf.config)[:, None, None] * torch.arange(seq_len).float()
    hf.transformer.register_buffer("alibi", alibi, persistent=False)  # goes along to another device
    rows = [1]

    def count_rows(_: nn.Module, args: tuple, given: dict) -> None:
        tokens = given.get("input_ids")
        rows[0] = len(given["inputs_embeds"] if tokens is None else tokens)

    def tiled(mask, heads, dtype) -> torch.Tensor:
        return hf.transformer.alibi if rows[0] == 1 else hf.transformer.alibi.repeat(rows[0], 1, 1)

    hf.register_forward_pre_hook(count_rows, with_kwargs=True)
    hf.transformer.build_alibi_tensor = tiled
    for block in hf.transformer.h:
        block.mlp.gelu_impl = _Gelu()


FAMILY = _decoder.Family(
    hf="BloomForCausalLM",
    config="BloomConfig",
    table="transformer.word_embeddings",
    embedding_norm="transformer.word_embeddings_layernorm",
    layer="transformer.h.{}.",
    norms=("input_layernorm", "post_attention_layernorm"),
    attention=_layouts.interleaved("self_attention.query_key_value", "self_attention.dense"),
    feed_forward=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    final="transformer.ln_f",
    activation="gelu_new",
    alibi=_slopes,
    takes_positions=False,
    prepare=_ready,
)
SERVES = Serves(
    architectures={"BloomForCausalLM": "causal_lm", "BloomModel": "causal_lm"},
    model_types=("bloom",),
    layers="n_layer",
    longest=None,
    otherwise=2048,
)
skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}

"""BLOOM: positions only by ALiBi (a distance penalty on the scores), and a norm right after the embedding."""

import torch
from torch import nn

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _decoder, _layouts
from ane_sweep.worker.models._types import Dynamic


def _slopes(config: Dynamic) -> torch.Tensor:
    """Return one slope per head, (heads,): powers of 2^(-8/n) for n heads, n a power of 2; further heads take odd
    powers for 2n.

    Press et al., "Train Short, Test Long" (arXiv 2108.12409), and the authors' code for other numbers of heads.
    """
    heads = config.num_attention_heads
    power = 1 << (heads.bit_length() - 1)
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-8 * (2 * i + 1) / (2 * power)) for i in range(heads - power)]
    return torch.tensor(slopes)


class _Gelu(nn.Module):
    """BLOOM's GELU without its autograd function, which a trace would record as Python code."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from transformers.models.bloom.modeling_bloom import bloom_gelu_forward

        return bloom_gelu_forward(x)


def _prepare(hf: nn.Module, seq_len: int) -> None:
    """Give Hugging Face's module the finished ALiBi tensor; it would derive it from a 2-D mask, but ours is 4-D."""
    body: Dynamic = hf.get_submodule("transformer")
    alibi = _slopes(body.config)[:, None, None] * torch.arange(seq_len).float()
    body.register_buffer("alibi", alibi, persistent=False)  # goes along to another device
    rows = [1]

    def count_rows(_: nn.Module, args: tuple[object, ...], inputs: dict[str, torch.Tensor | None]) -> None:
        tokens = inputs.get("input_ids")
        first = inputs["inputs_embeds"] if tokens is None else tokens
        rows[0] = 1 if first is None else len(first)

    hf.register_forward_pre_hook(count_rows, with_kwargs=True)
    body.build_alibi_tensor = lambda mask, heads, dtype: (
        body.alibi if rows[0] == 1 else body.alibi.repeat(rows[0], 1, 1)
    )
    for block in body.h:
        block.mlp.gelu_impl = _Gelu()


FAMILY = _decoder.DecoderFamily(
    config="BloomConfig",
    builds={"causal_lm": "BloomForCausalLM"},
    table="transformer.word_embeddings",
    embedding_norm="transformer.word_embeddings_layernorm",
    layer="transformer.h.{}.",
    norms=("input_layernorm", "post_attention_layernorm"),
    attention=_layouts.interleaved_projection("self_attention.query_key_value", "self_attention.dense"),
    feed_forward=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    final="transformer.ln_f",
    activation="gelu_new",
    alibi=_slopes,
    takes_positions=False,
    prepare=_prepare,
)
SERVES = Serves(
    architectures={"BloomForCausalLM": "causal_lm", "BloomModel": "causal_lm"},
    model_types=("bloom",),
    layers="n_layer",
    longest=None,
    otherwise=2048,
)

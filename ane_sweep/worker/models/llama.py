"""Llama: RMSNorm, rotary positions, a gated feed-forward, fewer key and value heads than query heads. Qwen and Gemma share its form."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _decoder, _layouts

FAMILY = _decoder.DecoderFamily(
    config="LlamaConfig",
    builds={"causal_lm": "LlamaForCausalLM"},
    ignored=(r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq$",),  # frequencies that old checkpoints carry
    table="model.embed_tokens",
    layer="model.layers.{}.",
    norms=("input_layernorm", "post_attention_layernorm"),
    attention=_layouts.separate_projections(*(f"self_attn.{name}_proj" for name in ("q", "k", "v", "o"))),
    feed_forward=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    final="model.norm",
    rms=True,
    rotary=_layouts.rotary_halves,
)
SERVES = Serves(
    architectures={"LlamaForCausalLM": "causal_lm"}, model_types=("llama",), norms="rms", gated=True, tied=False
)

"""The names and form of Llama, which Qwen and Gemma share; their files hold the differences."""

from ane_sweep.worker.models import _decoder, _layouts

# Frequencies that old checkpoints carry.
IGNORED = (r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq$",)

FAMILY = _decoder.DecoderFamily(
    hf="LlamaForCausalLM",
    config="LlamaConfig",
    table="model.embed_tokens",
    layer="model.layers.{}.",
    norms=("input_layernorm", "post_attention_layernorm"),
    attention=_layouts.separate_projections(*(f"self_attn.{name}_proj" for name in ("q", "k", "v", "o"))),
    feed_forward=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    final="model.norm",
    rms=True,
    rotary=_layouts.rotary_halves,
)

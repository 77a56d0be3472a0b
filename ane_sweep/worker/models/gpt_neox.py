"""GPT-NeoX (Pythia): attention and feed-forward in parallel, a part of each head rotated, an untied head."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _decoder, _layouts

FAMILY = _decoder.DecoderFamily(
    config="GPTNeoXConfig",
    builds={"causal_lm": "GPTNeoXForCausalLM"},
    ignored=(r"(gpt_neox\.)?layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)$",),
    renamed=((r"^embed_out\.", "lm_head."),),  # the name in checkpoints, and in transformers 5
    table="gpt_neox.embed_in",
    layer="gpt_neox.layers.{}.",
    norms=("input_layernorm", "post_attention_layernorm"),
    attention=_layouts.interleaved_projection("attention.query_key_value", "attention.dense"),
    feed_forward=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    final="gpt_neox.final_layer_norm",
    wiring=lambda config: "parallel" if config.use_parallel_residual else "pre",
    rotary=_layouts.rotary_halves,
)
SERVES = Serves(architectures={"GPTNeoXForCausalLM": "causal_lm"}, model_types=("gpt_neox",), tied=False)

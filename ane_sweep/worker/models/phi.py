"""Phi 1 and 2: one norm for attention and feed-forward in parallel, a part of each head rotated, a head with a bias."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _decoder, _layouts

FAMILY = _decoder.DecoderFamily(
    config="PhiConfig",
    builds={"causal_lm": "PhiForCausalLM"},
    ignored=(r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq$",),
    table="model.embed_tokens",
    layer="model.layers.{}.",
    norms=("input_layernorm", None),
    attention=_layouts.separate_projections(
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense"
    ),
    feed_forward=("mlp.fc1", "mlp.fc2"),
    final="model.final_layernorm",
    wiring=lambda config: "parallel",
    rotary=_layouts.rotary_halves,
)
SERVES = Serves(architectures={"PhiForCausalLM": "causal_lm"}, model_types=("phi",), tied=False)

"""Phi 1 and 2: one norm for attention and feed-forward side by side, a part of each head rotated, a head with a bias."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _decoder, _layouts

IGNORED = (r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq$",)

FAMILY = _decoder.DecoderFamily(
    hf="PhiForCausalLM",
    config="PhiConfig",
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
SERVES = Serves(
    architectures={"PhiForCausalLM": "causal_lm"},
    model_types=("phi",),
    layers="num_hidden_layers",
    longest="max_position_embeddings",
    tied=False,
)
skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}

"""Qwen 3: Llama with each query and key head normed."""

from dataclasses import replace

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _layouts, _llama

IGNORED = _llama.IGNORED

FAMILY = replace(
    _llama.FAMILY,
    hf="Qwen3ForCausalLM",
    config="Qwen3Config",
    head_norms=("self_attn.q_norm", "self_attn.k_norm"),
    window=_layouts.refuse_window,
)
SERVES = Serves(
    architectures={"Qwen3ForCausalLM": "causal_lm"},
    model_types=("qwen3",),
    layers="num_hidden_layers",
    longest="max_position_embeddings",
    norms="rms",
    gated=True,
    unbuilt={"use_sliding_window": True},  # given a ready mask, transformers' module would leave the window out
    tied=False,
)
skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}

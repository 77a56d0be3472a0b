"""Qwen 3: Llama with each query and key head normed."""

from dataclasses import replace

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _layouts, llama

FAMILY = replace(
    llama.FAMILY,
    config="Qwen3Config",
    builds={"causal_lm": "Qwen3ForCausalLM"},
    head_norms=("self_attn.q_norm", "self_attn.k_norm"),
    window=_layouts.refuse_window,
)
SERVES = Serves(
    architectures={"Qwen3ForCausalLM": "causal_lm"},
    model_types=("qwen3",),
    norms="rms",
    gated=True,
    unbuilt={"use_sliding_window": True},  # given a ready mask, transformers' module would leave the window out
    tied=False,
)

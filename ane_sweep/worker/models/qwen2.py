"""Qwen 2 and 2.5: Llama with biases on queries, keys and values."""

from dataclasses import replace

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _layouts, _llama

IGNORED = _llama.IGNORED

FAMILY = replace(_llama.FAMILY, hf="Qwen2ForCausalLM", config="Qwen2Config", window=_layouts.refuse_window)
SERVES = Serves(
    architectures={"Qwen2ForCausalLM": "causal_lm"},
    model_types=("qwen2",),
    layers="num_hidden_layers",
    longest="max_position_embeddings",
    norms="rms",
    gated=True,
    unbuilt={"use_sliding_window": True},  # given a ready mask, transformers' module would leave the window out
    tied=False,
)
skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}

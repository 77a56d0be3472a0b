"""Qwen 2 and 2.5: Llama with biases on queries, keys and values."""

from dataclasses import replace

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _layouts, llama

FAMILY = replace(
    llama.FAMILY, config="Qwen2Config", builds={"causal_lm": "Qwen2ForCausalLM"}, window=_layouts.refuse_window
)
SERVES = Serves(
    architectures={"Qwen2ForCausalLM": "causal_lm"},
    model_types=("qwen2",),
    norms="rms",
    gated=True,
    unbuilt={"use_sliding_window": True},  # given a ready mask, transformers' module would leave the window out
    tied=False,
)

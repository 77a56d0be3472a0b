"""Gemma: Llama with embeddings scaled by sqrt(width), norms that store their weight less 1, and a tied head."""

from dataclasses import replace

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import llama

FAMILY = replace(
    llama.FAMILY,
    config="GemmaConfig",
    builds={"causal_lm": "GemmaForCausalLM"},
    norm_offset=1.0,
    embedding_scale=lambda config: config.hidden_size**0.5,
)
SERVES = Serves(architectures={"GemmaForCausalLM": "causal_lm"}, model_types=("gemma",), norms="rms", gated=True)

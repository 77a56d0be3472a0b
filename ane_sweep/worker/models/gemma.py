"""Gemma: Llama with embeddings scaled by sqrt(width), norms that store their weight less 1, and a tied head."""

from dataclasses import replace

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _llama

IGNORED = _llama.IGNORED

FAMILY = replace(
    _llama.FAMILY,
    hf="GemmaForCausalLM",
    config="GemmaConfig",
    norm_offset=1.0,
    embedding_scale=lambda config: config.hidden_size**0.5,
)
SERVES = Serves(
    architectures={"GemmaForCausalLM": "causal_lm"},
    model_types=("gemma",),
    layers="num_hidden_layers",
    longest="max_position_embeddings",
    norms="rms",
    gated=True,
)
skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}

"""Llama: RMSNorm, rotary positions, a gated feed-forward, fewer key and value heads than query heads."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models._llama import FAMILY, IGNORED

__all__ = ["IGNORED", "VARIANTS", "ports", "skeleton"]

SERVES = Serves(
    architectures={"LlamaForCausalLM": "causal_lm"},
    model_types=("llama",),
    layers="num_hidden_layers",
    longest="max_position_embeddings",
    norms="rms",
    gated=True,
    tied=False,
)
skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}

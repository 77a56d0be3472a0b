"""Llama: RMSNorm, rotary positions, a gated feed-forward, fewer key and value heads than query heads."""

from ane_sweep.worker.models._llama import FAMILY, IGNORED

__all__ = ["IGNORED", "VARIANTS", "ports", "skeleton"]

skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}

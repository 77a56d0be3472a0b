"""Causal masks as others wrote them, to repeat what they saw: a constant with a copy for each head, one computed inside.

band_part is the op that coremltools 6 left of a triangular mask, at the beginning of programs, and that the Neural Engine
does not run (more-ane-transformers notes, 4 April 2023: three of four chunks of pythia-2.8b began with it). Today's
converter folds a triangle of constants; one of the shape of a value that only a call knows stays in the program.
"""

import torch
from torch import Tensor, nn

from ane_sweep.worker.models import _hf


def causal(config, seq_len: int, mask: str) -> Tensor:
    """(1, 1, S, S), or with mask=causal_per_head (1, heads, S, S)."""
    once = _hf.causal_mask(seq_len)
    return once.repeat(1, config.num_attention_heads, 1, 1) if mask == "causal_per_head" else once


class BandPart(nn.Module):
    """`inner`, which takes a causal mask, given one that is computed of the tokens' shape."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor, **more) -> tuple[Tensor, ...]:
        row = (tokens[:1] if tokens.dim() == 2 else tokens[:1, :, 0]).float()[:, None, None, :]  # (1, 1, 1, S)
        seen = torch.ones_like(row.transpose(2, 3) * row).tril()
        return self.inner(tokens, (1.0 - seen) * _hf.MASKED, **more)

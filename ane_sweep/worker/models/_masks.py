"""Causal masks in the forms that others used, to repeat their measurements: a constant for each head, one computed inside.

band_part is the op into which coremltools 6 turned a triangular mask, at the beginning of programs. The Neural Engine does
not run it (more-ane-transformers notes, 4 April 2023: three of four chunks of pythia-2.8b began with it). Today's
converter folds a triangle of constants; one of the shape of a value that only a call knows stays in the program.
"""

import torch
from torch import Tensor, nn

from ane_sweep.worker.models import _hf
from ane_sweep.worker.models._cache import Memory
from ane_sweep.worker.models._types import Dynamic


def make_causal(config: Dynamic, seq_len: int, mask: str) -> Tensor:
    """Return the causal mask (1, 1, S, S), or with mask=causal_per_head (1, heads, S, S)."""
    once = _hf.make_causal_mask(seq_len)
    return once.repeat(1, config.num_attention_heads, 1, 1) if mask == "causal_per_head" else once


class BandPart(nn.Module):
    """A module that computes a causal mask from the tokens' shape and passes it to `inner`."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor, memory: Memory | None = None) -> tuple[Tensor, ...]:
        row = (tokens[:1] if tokens.dim() == 2 else tokens[:1, :, 0]).float()[:, None, None, :]  # (1, 1, 1, S)
        seen = torch.ones_like(row.transpose(2, 3) * row).tril()
        return self.inner(tokens, (1.0 - seen) * _hf.MASKED, memory=memory)

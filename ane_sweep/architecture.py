"""What a checkpoint may say of an architecture, checked before anybody computes with it. Standard library only."""

from collections.abc import Mapping
from typing import Any

LARGEST = 2**24  # of a vocabulary, a width or a number of layers
SIZES = (
    "d_ff", "d_model", "dim", "ffn_dim", "head_dim", "hidden_dim", "hidden_size", "max_position_embeddings", "n_embd", "n_head",
    "n_heads", "n_layer", "n_layers", "n_positions", "num_attention_heads", "num_decoder_layers", "num_heads",
    "num_hidden_layers", "num_layers", "type_vocab_size", "vocab_size",
)  # fmt: skip


def problems(arch: Mapping[str, Any]) -> list[str]:
    """One sentence for every size that no model could be built with."""
    return [
        f"arch.{name}={repr(arch[name])[:80]}: expected a whole number from 1 to {LARGEST:,}"
        for name in SIZES
        if name in arch and not (type(arch[name]) is int and 0 < arch[name] <= LARGEST)
    ]

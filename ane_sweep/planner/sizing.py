"""How many parameters an architecture has, from its config.json alone: within some percent, for plans made without weights."""

from collections.abc import Mapping
from typing import Any

from ane_sweep.bridge.families import Serves

_WIDTH = ("n_embd", "hidden_size", "n_embed", "dim", "d_model")
_INNER = ("n_inner", "intermediate_size", "hidden_dim", "d_ff", "ffn_dim")
_HEADS = ("n_head", "num_attention_heads", "n_heads", "num_heads")
_HEAD_WIDTH = ("head_dim", "d_kv")


def estimate(arch: Mapping[str, Any], serves: Serves, task: str) -> int:
    """Tables, attention and feed-forward; norms and biases are left out. `arch` follows the rules of architecture.py."""
    width, heads = _first(arch, _WIDTH), _first(arch, _HEADS)
    if not width or not heads:
        return 1
    head = _first(arch, _HEAD_WIDTH) or width // heads
    shared = 1 if arch.get("multi_query") else arch.get("num_key_value_heads") or heads
    gated = "rms_norm_eps" in arch or str(arch.get("feed_forward_proj")).startswith("gated-")
    attention = 2 * width * head * (heads + shared)
    feed_forward = (3 if gated else 2) * width * (_first(arch, _INNER) or 4 * width)
    layers = arch[serves.layers] * (attention + feed_forward)
    if task == "seq2seq":
        layers += (arch.get("num_decoder_layers") or arch[serves.layers]) * (2 * attention + feed_forward)
    positions = arch.get(serves.longest) or 0 if serves.longest and not _rotary(arch) and task != "seq2seq" else 0
    tables = arch.get("vocab_size") or 0
    head_table = task in ("causal_lm", "seq2seq") and not arch.get("tie_word_embeddings", serves.tied)
    table_width = arch.get("word_embed_proj_dim") or width
    return max(1, layers + positions * width + tables * table_width * (2 if head_table else 1))


def _rotary(arch: Mapping[str, Any]) -> bool:
    return any(name.startswith(("rope", "rotary", "partial_rotary")) for name in arch)


def _first(arch: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((arch[name] for name in names if arch.get(name)), None)

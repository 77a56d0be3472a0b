"""How many parameters an architecture has, from its config.json alone: within some percent, for plans made without weights."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ane_sweep.bridge.families import Serves
from ane_sweep.bridge.kinds import KINDS

_WIDTH = ("n_embd", "hidden_size", "n_embed", "dim", "d_model")
_INNER = ("n_inner", "intermediate_size", "hidden_dim", "d_ff", "ffn_dim", "encoder_ffn_dim")
_HEADS = ("n_head", "num_attention_heads", "n_heads", "num_heads", "encoder_attention_heads")
_HEAD_WIDTH = ("head_dim", "d_kv")


def estimate(arch: Mapping[str, Any], serves: Serves, task: str) -> int:
    """Return the parameters of tables, attention, feed-forward and the norms of blocks; biases are left out.

    `arch` follows the rules of architecture.py.
    """
    kind, arch = KINDS[task], own(arch, serves, task)
    if "depths" in arch:
        return _staged(arch) + _ends(arch, arch["hidden_sizes"][-1])
    width, heads = _first(arch, _WIDTH), _first(arch, _HEADS)
    if not width or not heads:
        return 1
    head = _first(arch, _HEAD_WIDTH) or width // heads
    shared = 1 if arch.get("multi_query") else arch.get("num_key_value_heads") or heads
    attention = 2 * width * head * (heads + shared)
    feed_forward = (3 if serves.has_gate(arch) else 2) * width * (_first(arch, _INNER) or 4 * width)
    norm = width * (1 if serves.norms == "rms" else 2)
    layers = arch[serves.layers] * (attention + feed_forward + 2 * norm)
    if kind.pair:
        layers += (arch.get("num_decoder_layers") or arch[serves.layers]) * (2 * attention + feed_forward + 3 * norm)
    positions = (arch.get(serves.longest) if serves.longest else None) or patches(arch)
    if _rotary(arch) or kind.pair:
        positions = 0
    tables = (arch.get("vocab_size") or 0) if kind.reads else 0
    head_table = kind.leaves == "tokens" and not arch.get("tie_word_embeddings", serves.tied)
    table_width = arch.get("word_embed_proj_dim") or width
    return max(1, layers + _ends(arch, width) + positions * width + tables * table_width * (2 if head_table else 1))


def own(arch: Mapping[str, Any], serves: Serves, task: str) -> Mapping[str, Any]:
    """Return the architecture of the part that a task uses."""
    return {**arch, **(arch.get(serves.parts[task]) or {})} if task in serves.parts else arch


def patches(arch: Mapping[str, Any]) -> int:
    """Positions that a picture becomes, the first one among them; of a net in stages, those of its last. 0 for texts."""
    if not arch.get("image_size") or not arch.get("patch_size"):
        return 0
    (height, width), (down, across) = _pair(arch["image_size"]), _pair(arch["patch_size"])
    if "depths" in arch:  # each stage after the first halves, and there is no first position
        halved = 2 ** (len(arch["depths"]) - 1)
        return (height // (down * halved)) * (width // (across * halved))
    return 1 + (height // down) * (width // across)


def _pair(size: int | list[int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[-1])


def _ends(arch: Mapping[str, Any], width: int) -> int:
    """Return the parameters of the layers that read a picture or a spectrum, and of a head that is no table."""
    channels, bins = arch.get("num_channels") or 3, arch.get("num_mel_bins") or 0
    down, across = _pair(arch.get("patch_size") or 0)
    first = arch["hidden_sizes"][0] if "depths" in arch else width
    taken = channels * down * across * first + (3 * (bins + width) * width if bins else 0)  # two convolutions of three
    return taken + width * (
        arch.get("num_labels") or len(arch.get("id2label") or ()) or arch.get("projection_dim") or 0
    )


def _staged(arch: Mapping[str, Any]) -> int:
    """Blocks of a depthwise 7 x 7 convolution and a feed-forward, and between stages a convolution of 2 x 2."""
    widths = arch["hidden_sizes"]
    blocks = sum(depth * (8 * width + 49) * width for depth, width in zip(arch["depths"], widths))
    return blocks + sum(4 * narrow * wide for narrow, wide in pairwise(widths))


def _rotary(arch: Mapping[str, Any]) -> bool:
    return any(name.startswith(("rope", "rotary", "partial_rotary")) for name in arch)


def _first(arch: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((arch[name] for name in names if arch.get(name)), None)

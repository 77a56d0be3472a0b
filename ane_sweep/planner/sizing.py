"""Estimates of the number of parameters from a config.json alone, within some percent, for plans made without weights."""

from collections.abc import Mapping
from itertools import pairwise

from ane_sweep.bridge.families import Serves
from ane_sweep.bridge.kinds import KINDS

_WIDTH = ("n_embd", "hidden_size", "n_embed", "dim", "d_model")
_INNER = ("n_inner", "intermediate_size", "hidden_dim", "d_ff", "ffn_dim", "encoder_ffn_dim")
_HEADS = ("n_head", "num_attention_heads", "n_heads", "num_heads", "encoder_attention_heads", "attention_head_dim")
_HEAD_WIDTH = ("head_dim", "d_kv")


def estimate(arch: Mapping[str, object], serves: Serves, task: str) -> int:
    """Return the number of parameters of tables, attention, feed-forward and norms of blocks; biases are left out.

    `arch` follows the rules of architecture.py.
    """
    kind, arch = KINDS[task], own(arch, serves, task)
    if "depths" in arch:
        return _staged(arch) + _ends(arch, _sizes(arch, "hidden_sizes")[-1])
    width, heads = _first(arch, _WIDTH), _first(arch, _HEADS)
    if not width or not heads:
        return 1
    head = _first(arch, _HEAD_WIDTH) or width // heads
    shared = 1 if arch.get("multi_query") else _size(arch, "num_key_value_heads") or heads
    attention = 2 * width * head * (heads + shared)
    feed_forward = (3 if serves.has_gate(arch) else 2) * width * (_first(arch, _INNER) or 4 * width)
    norm = width * (1 if serves.norms == "rms" else 2)
    layers = _size(arch, serves.layers) * (attention + feed_forward + 2 * norm)
    if kind.pair:
        layers += (_size(arch, "num_decoder_layers") or _size(arch, serves.layers)) * (
            2 * attention + feed_forward + 3 * norm
        )
    rotary = any(name.startswith(("rope", "rotary", "partial_rotary")) for name in arch)
    positions = 0 if rotary or kind.pair else _size(arch, serves.longest or "") or patches(arch)
    tables = count_tables(arch, serves, task) * weigh_table(arch, task)
    return max(1, layers + _ends(arch, width) + positions * width + tables)


def weigh_table(arch: Mapping[str, object], task: str) -> int:
    """Return the number of parameters of a table over the vocabulary, 0 for a model that reads no text."""
    width = _size(arch, "word_embed_proj_dim") or _first(arch, _WIDTH)
    return _size(arch, "vocab_size") * width if KINDS[task].reads else 0


def count_tables(arch: Mapping[str, object], serves: Serves, task: str) -> int:
    """Return the number of tables over the vocabulary: two if the head has its own."""
    return 1 + (KINDS[task].leaves == "tokens" and not arch.get("tie_word_embeddings", serves.tied))


def count_heads(arch: Mapping[str, object]) -> int:
    """Return the number of attention heads, 0 for a net without attention."""
    return _first(arch, _HEADS)


def own(arch: Mapping[str, object], serves: Serves, task: str) -> Mapping[str, object]:
    """Return the architecture of the part that a task uses."""
    part = arch.get(serves.parts.get(task, ""))
    return {**arch, **part} if isinstance(part, dict) else arch


def patches(arch: Mapping[str, object]) -> int:
    """Return the number of positions for a picture, including the class position; for a net in stages, in its last stage. 0 for texts."""
    (height, width), (down, across) = _pair(arch, "image_size"), _pair(arch, "patch_size")
    if not height or not down:
        return 0
    if "depths" in arch:  # each stage after the first halves, and there is no first position
        halved: int = 2 ** (len(_sizes(arch, "depths")) - 1)
        return (height // (down * halved)) * (width // (across * halved))
    return 1 + (height // down) * (width // across)


def _size(arch: Mapping[str, object], key: str) -> int:
    value = arch.get(key)
    return value if isinstance(value, int) else 0


def _sizes(arch: Mapping[str, object], key: str) -> list[int]:
    value = arch.get(key)
    return value if isinstance(value, list) else []


def _pair(arch: Mapping[str, object], key: str) -> tuple[int, int]:
    """Return (height, width) of a key that holds one size or two; (0, 0) without it."""
    sizes = _sizes(arch, key) or [_size(arch, key)]
    return sizes[0], sizes[-1]


def _ends(arch: Mapping[str, object], width: int) -> int:
    """Return the parameters of the layers that read a picture or a spectrum, and of a separate head."""
    channels, bins = _size(arch, "num_channels") or 3, _size(arch, "num_mel_bins")
    down, across = _pair(arch, "patch_size")
    first = _sizes(arch, "hidden_sizes")[0] if "depths" in arch else width
    taken = channels * down * across * first + (3 * (bins + width) * width if bins else 0)  # two convolutions of three
    names = arch.get("id2label")
    labels = _size(arch, "num_labels") or (len(names) if isinstance(names, dict) else 0)
    return taken + width * (labels or _size(arch, "projection_dim"))


def _staged(arch: Mapping[str, object]) -> int:
    """Return the parameters of a net in stages: blocks of a 7 x 7 depthwise convolution and a feed-forward, 2 x 2
    convolutions between stages.
    """
    widths = _sizes(arch, "hidden_sizes")
    blocks = sum(depth * (8 * width + 49) * width for depth, width in zip(_sizes(arch, "depths"), widths))
    return blocks + sum(4 * narrow * wide for narrow, wide in pairwise(widths))


def _first(arch: Mapping[str, object], names: tuple[str, ...]) -> int:
    return next((size for name in names if (size := _size(arch, name))), 0)

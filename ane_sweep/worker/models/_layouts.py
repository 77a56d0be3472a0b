"""How checkpoints lay out what a decoder needs: where projections are, and how positions rotate.

Callables for `_decoder.Family`; each takes Hugging Face's config first.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ane_sweep.worker.models import _ane

Convs = tuple[_ane.Conv1x1, _ane.Conv1x1, _ane.Conv1x1, _ane.Conv1x1]


def first_of(config, *names: str):
    return next(value for name in names if (value := getattr(config, name, None)) is not None)


def head_width(config) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def key_heads(config) -> int:
    if getattr(config, "multi_query", False):
        return 1
    return getattr(config, "num_key_value_heads", None) or config.num_attention_heads


def full_attention(config, layer: int) -> None:
    """No window. Raises ValueError where the checkpoint asks for one: Hugging Face's module, given a ready mask, would
    not apply it."""
    if getattr(config, "use_sliding_window", False):
        raise ValueError("use_sliding_window=true is not built here; the Qwen sizes in conf/model have it off")


def separate(query: str, key: str, value: str, out: str) -> Callable[[Any, _ane.Reader], Convs]:
    """Four tensors."""
    return lambda config, read: tuple(read.conv(name) for name in (query, key, value, out))


def stacked(fused: str, out: str, *, transposed: bool = False) -> Callable[[Any, _ane.Reader], Convs]:
    """One tensor: all queries, then all keys, then all values."""

    def convs(config, read: _ane.Reader) -> Convs:
        width = head_width(config)
        ends = [config.num_attention_heads * width]
        ends += [ends[0] + key_heads(config) * width, ends[0] + 2 * key_heads(config) * width]
        spans = [slice(start, end) for start, end in zip([0, *ends], ends)]
        three = [read.conv(fused, span, transposed=transposed) for span in spans]
        return (*three, read.conv(out, transposed=transposed))

    return convs


def interleaved(fused: str, out: str) -> Callable[[Any, _ane.Reader], Convs]:
    """One tensor: head by head, each its query, key and value."""

    def convs(config, read: _ane.Reader) -> Convs:
        rows = torch.arange(3 * config.hidden_size).view(config.num_attention_heads, 3, -1)
        return (*(read.conv(fused, rows[:, part].flatten()) for part in range(3)), read.conv(out))

    return convs


def frequencies(config, seq_len: int, width: int) -> Tensor:
    """Angles (width / 2, S) of the checkpoint's own rotary settings (transformers' rope_parameters), scaling included.

    Raises ValueError for a kind whose frequencies depend on the length of the text.
    """
    settings = config.rope_parameters
    if settings["rope_type"] == "default":
        inverse = 1.0 / settings["rope_theta"] ** (torch.arange(0, width, 2).float() / width)
    elif settings["rope_type"] in ("linear", "llama3"):
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        inverse, _ = ROPE_INIT_FUNCTIONS[settings["rope_type"]](config)
    else:
        raise ValueError(
            f"rotary kind {settings['rope_type']!r} has no split_einsum form; known: default, linear, llama3"
        )
    return inverse[:, None] * torch.arange(seq_len).float()[None, :]


def rotary_halves(config, seq_len: int) -> tuple[Tensor, Tensor, Tensor]:
    """GPT-NeoX and Llama: channel i of the first half turns with channel i of the second."""
    width = head_width(config)
    turned = int(width * config.rope_parameters.get("partial_rotary_factor", 1.0))
    angles = frequencies(config, seq_len, turned)
    first = torch.arange(turned // 2)
    return _rotary(width, angles.repeat(2, 1), first, first + turned // 2)


def rotary_pairs(config, seq_len: int) -> tuple[Tensor, Tensor, Tensor]:
    """GPT-J and CodeGen: channel 2i turns with channel 2i + 1, at 10000's powers."""
    turned = config.rotary_dim
    inverse = 1.0 / 10000 ** (torch.arange(0, turned, 2) / turned)
    angles = inverse[:, None] * torch.arange(seq_len).float()[None, :]
    first = torch.arange(0, turned, 2)
    return _rotary(head_width(config), angles.repeat_interleave(2, 0), first, first + 1)


def _rotary(width: int, angles: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rest = torch.zeros(width - angles.shape[0], angles.shape[1])
    turn = torch.zeros(width, width)
    turn[first, second], turn[second, first] = -1.0, 1.0
    return torch.cat([angles.cos(), rest + 1.0]), torch.cat([angles.sin(), rest]), turn

"""Layouts of decoders' checkpoints: how projections are stored, and how positions rotate.

The functions are values of `_decoder.DecoderFamily`; each takes Hugging Face's config first.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ane_sweep.worker.models import _ane
from ane_sweep.worker.models._types import Dynamic

Convs = tuple[_ane.Conv1x1, _ane.Conv1x1, _ane.Conv1x1, _ane.Conv1x1]
FindConvs = Callable[[Dynamic, _ane.Reader], Convs]
RotaryTables = tuple[Tensor, Tensor, Tensor]  # cos (d,S), sin (d,S), turn (d,d)


def head_width(config: Dynamic) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def key_heads(config: Dynamic) -> int:
    if getattr(config, "multi_query", False):
        return 1
    return getattr(config, "num_key_value_heads", None) or config.num_attention_heads


def refuse_window(config: Dynamic, layer: int) -> None:
    """Return None (no window). Raises ValueError if the checkpoint has a window.

    Hugging Face's module would not apply the window to the mask that we pass in.
    """
    if getattr(config, "use_sliding_window", False):
        raise ValueError("use_sliding_window=true is not built here; the Qwen sizes in conf/model have it off")


def separate_projections(query: str, key: str, value: str, out: str) -> FindConvs:
    """Return a reader of four tensors, one for each projection."""
    return lambda config, read: (read.conv(query), read.conv(key), read.conv(value), read.conv(out))


def stacked_projection(fused: str, out: str, *, transposed: bool = False) -> FindConvs:
    """Return a reader of one tensor that contains all queries, then all keys, then all values."""

    def read_convs(config: Dynamic, read: _ane.Reader) -> Convs:
        width = head_width(config)
        ends = [config.num_attention_heads * width]
        ends += [ends[0] + key_heads(config) * width, ends[0] + 2 * key_heads(config) * width]
        spans = [slice(start, end) for start, end in zip([0, *ends], ends)]
        query, key, value = (read.conv(fused, span, transposed=transposed) for span in spans)
        return query, key, value, read.conv(out, transposed=transposed)

    return read_convs


def interleaved_projection(fused: str, out: str) -> FindConvs:
    """Return a reader of one tensor that contains query, key and value of each head in turn."""

    def read_convs(config: Dynamic, read: _ane.Reader) -> Convs:
        rows = torch.arange(3 * config.hidden_size).view(config.num_attention_heads, 3, -1)
        query, key, value = (read.conv(fused, rows[:, part].flatten()) for part in range(3))
        return query, key, value, read.conv(out)

    return read_convs


def rotary_angles(config: Dynamic, seq_len: int, width: int) -> Tensor:
    """Return the angles (width / 2, S) of the checkpoint's rotary settings (transformers' rope_parameters), scaled.

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


def rotary_halves(config: Dynamic, seq_len: int) -> RotaryTables:
    """Return the tables of GPT-NeoX and Llama: each channel of the first half rotates with the same channel of the second half."""
    width = head_width(config)
    turned = int(width * config.rope_parameters.get("partial_rotary_factor", 1.0))
    angles = rotary_angles(config, seq_len, turned)
    first = torch.arange(turned // 2)
    return _rotary_tables(width, angles.repeat(2, 1), first, first + turned // 2)


def rotary_pairs(config: Dynamic, seq_len: int) -> RotaryTables:
    """Return the tables of GPT-J and CodeGen: channel 2i rotates with channel 2i + 1, at powers of 10000."""
    turned = config.rotary_dim
    inverse = 1.0 / 10000 ** (torch.arange(0, turned, 2) / turned)
    angles = inverse[:, None] * torch.arange(seq_len).float()[None, :]
    first = torch.arange(0, turned, 2)
    return _rotary_tables(head_width(config), angles.repeat_interleave(2, 0), first, first + 1)


def _rotary_tables(width: int, angles: Tensor, first: Tensor, second: Tensor) -> RotaryTables:
    rest = torch.zeros(width - angles.shape[0], angles.shape[1])
    turn = torch.zeros(width, width)
    turn[first, second], turn[second, first] = -1.0, 1.0
    return torch.cat([angles.cos(), rest + 1.0]), torch.cat([angles.sin(), rest]), turn

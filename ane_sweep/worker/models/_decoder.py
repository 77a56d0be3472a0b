"""The decoder that all language models here share: input_ids (1,S) -> logits (1,S,V), the whole window at once.

A family says in a `Family` what its checkpoint calls things and where it differs; this file builds both variants.
There is no attention mask by default: the causal one is a constant, and texts shorter than the window are padded on
the right, where no real token sees them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ane_sweep.bridge.building import DECODE, PLAIN, POSITION, PREFILL, Options
from ane_sweep.worker.models import _ane, _cache, _hf, _masks
from ane_sweep.worker.models._layouts import Convs, first_of, head_width, key_heads
from ane_sweep.worker.models._ports import Port, Ports


@dataclass(frozen=True)
class Family:
    """What a family calls its tensors, and what is peculiar to it. Callables take Hugging Face's config first.

    hf, config     classes of transformers
    table          of token embeddings; `positions` learned ones, read from row `position_offset` on
    layer          prefix of a block, with {} for its index; `norms` of the block (the second None: one for both)
    attention      (config, reader of the block) -> query, key, value and output convolutions
    feed_forward   names: (up, down) or (gate, up, down)
    final          the norm before the head, None: there is none; or config -> that
    project        names of convolutions after the lookup and before the head (OPT), where the state has them
    rotary         (config, S) -> cos (d,S), sin (d,S), turn (d,d)
    alibi          config -> one slope a head; what is added to a score is slope * (key position - query position)
    window         (config, layer) -> how many tokens a layer looks back on, or None for all
    scale          (config, layer) -> factor on the scores; None: 1 / sqrt(head dim)
    head_norms     names of RMS norms over each query head and each key head
    takes_positions  whether Hugging Face's module takes position_ids
    prepare        (Hugging Face's module, S): last touches so that it works with a ready mask
    follow         (Hugging Face's module, memory): what it must be told of the position before each call with a cache
    """

    hf: str
    config: str
    table: str
    layer: str
    norms: tuple[str, str | None]
    attention: Callable[[Any, _ane.Reader], Convs]
    feed_forward: tuple[str, ...]
    final: str | Callable[[Any], str | None]
    positions: str | None = None
    position_offset: int = 0
    embedding_norm: str | None = None
    embedding_scale: Callable[[Any], float] = lambda config: 1.0
    project: tuple[str, str] | None = None
    head: str = "lm_head"
    rms: bool = False
    norm_offset: float = 0.0
    eps: Callable[[Any], float] | None = None
    activation: str | None = None
    transposed: bool = False
    wiring: Callable[[Any], str] = lambda config: "pre"
    rotary: Callable[[Any, int], tuple[Tensor, Tensor, Tensor]] | None = None
    alibi: Callable[[Any], Tensor] | None = None
    window: Callable[[Any, int], int | None] = lambda config, layer: None
    scale: Callable[[Any, int], float] | None = None
    head_norms: tuple[str, str] | None = None
    takes_positions: bool = True
    prepare: Callable[[nn.Module, int], None] | None = None
    follow: Callable[[nn.Module, _cache.Memory], None] | None = None

    def configure(self, model: dict):
        import transformers

        return getattr(transformers, self.config)(**model["arch"], attn_implementation=_hf.ATTENTION)

    def skeleton(self, model: dict) -> nn.Module:
        """Hugging Face's module with its language-model head. Raises ValueError for another task."""
        import transformers

        if model["task"] != "causal_lm":
            raise ValueError(f"family {model['family']} knows the task 'causal_lm', not {model['task']!r}")
        return getattr(transformers, self.hf)(self.configure(model))

    def ports(self, model: dict, seq_len: int, options: Options = PLAIN, function: str = PREFILL) -> Ports:
        """Inputs and outputs under these options, the same for both variants; of prefill, or of decode (`_cache.py`)."""
        decode = function == DECODE
        length = 1 if decode else seq_len
        width = (1, length, _embedding_width(self.configure(model))) if options.embeddings == "out" else None
        tokens = [Port("inputs_embeds", width, "float32") if width else Port("input_ids", (1, length), "int32")]
        tokens += [Port(POSITION, (1,), "int32")] if decode else []
        masks = [Port("causal_mask", (1, 1, length, seq_len), "float32"), Port("key_mask", (1, seq_len), "float32")]
        count = {"causal_input": 1, "qk_and_k": 2}.get(options.mask, 0)
        positions = 1 if options.head == "last" else length
        logits = Port("logits", (1, positions, model["arch"]["vocab_size"]), "float32")
        return Ports((*tokens, *masks[:count]), (logits,))

    @property
    def variants(self) -> tuple[Callable[..., nn.Module], Callable[..., nn.Module]]:
        return partial(_build, self, original), partial(_build, self, split_einsum)


def _embedding_width(config) -> int:
    return getattr(config, "word_embed_proj_dim", None) or config.hidden_size


def _build(family: Family, make, model: dict, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN):
    """Either variant, in eval mode, padded inside where the options say so."""
    length = options.padded(seq_len)
    inside = replace(options, mask="causal_input") if options.mask == "band_part" else options
    module = make(family, model, state, length, inside, seq_len - 1 if options.head == "last" else None)
    whole = _masks.BandPart(module) if options.mask == "band_part" else module
    whole = whole if length == seq_len else Padded(whole, seq_len, length, options)
    if options.cache != "none":
        config = family.configure(model)
        heads, width = key_heads(config), head_width(config)
        shape, axis = ((1, heads, length, width), 2) if make is original else ((1, heads * width, 1, length), 3)
        kind = _cache.Cached if options.cache == "stateful" else _cache.Explicit
        whole = kind(whole, module, config.num_hidden_layers, shape, axis, length - seq_len)
    return whole.eval()


class Padded(nn.Module):
    """`inner` works on `length` positions; those beyond seq_len are padding on the right, seen by no real token."""

    def __init__(self, inner: nn.Module, seq_len: int, length: int, options: Options):
        super().__init__()
        self.inner, self.seq_len, self.more, self.options = inner, seq_len, length - seq_len, options

    def forward(self, tokens: Tensor, *masks: Tensor, **more) -> tuple[Tensor, ...]:
        tokens = _ane.pad_tokens(tokens, self.more)
        if masks:
            causal = F.pad(masks[0], (0, self.more, 0, self.more), value=_hf.MASKED)
            masks = (causal, *(F.pad(mask, (0, self.more)) for mask in masks[1:]))
        (logits,) = self.inner(tokens, *masks, **more)
        return (logits if self.options.head == "last" else logits[:, : self.seq_len],)


class Original(nn.Module):
    """The Hugging Face module, with the causal mask and positions given so that it need not build them.

    `follow` is the family's, for calls with a cache.
    """

    def __init__(self, hf: nn.Module, mask: Tensor, takes_positions: bool, last: int | None, follow=None):
        super().__init__()
        self.hf, self.takes_positions, self.follow = hf, takes_positions, follow
        self.keep = None if last is None else torch.tensor([last])
        self.register_buffer("position_ids", torch.arange(mask.shape[-1])[None], persistent=False)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens: Tensor, *masks: Tensor, memory: _cache.Memory | None = None) -> tuple[Tensor, ...]:
        position_ids, keep, more = self.position_ids, self.keep, {}
        mask = masks[0] if masks else self.mask
        if memory is not None:
            more["past_key_values"] = _cache.HuggingFaceCache(memory)
            mask = mask if masks else memory.row(mask, 2)
            if memory.position is not None:
                position_ids, keep = memory.position[None], None
            if self.follow:
                self.follow(self.hf, memory)
        if len(masks) > 1:
            mask = mask + _hf.additive_mask(masks[1])
        more |= {"position_ids": position_ids} if self.takes_positions else {}
        more |= {} if keep is None else {"logits_to_keep": keep}
        name = "inputs_embeds" if tokens.is_floating_point() else "input_ids"
        output = self.hf(**{name: tokens}, attention_mask=mask, use_cache=False, return_dict=False, **more)
        return (output[0],)


class SplitEinsum(nn.Module):
    """Decoder on (B, C, 1, S). `kinds` gives each layer's masks: layers of one kind share them.

    Where the causal mask is an input, it comes query by key, as Hugging Face lays it out, and is turned once.
    """

    def __init__(self, embedding, embedding_norm, layers, kinds: list, masks: dict, norm, head, last: int | None):
        super().__init__()
        self.embedding, self.embedding_norm, self.norm, self.head = embedding, embedding_norm, norm, head
        self.layers, self.kinds, self.last = nn.ModuleList(layers), kinds, last
        self.sizes = {kind: len(terms) for kind, terms in masks.items()}
        for kind, terms in masks.items():
            for head_index, term in enumerate(terms):
                self.register_buffer(f"mask_{kind}_{head_index}", term, persistent=False)

    def forward(self, tokens: Tensor, *given: Tensor, memory: _cache.Memory | None = None) -> tuple[Tensor, ...]:
        x = self.embedding(tokens, memory)
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        asked = [given[0].permute(0, 3, 1, 2)] if given else []  # (1, S_key, 1, S_query)
        asked += [((1.0 - mask) * _hf.MASKED)[:, :, None, None] for mask in given[1:]]
        for i, (layer, kind) in enumerate(zip(self.layers, self.kinds)):
            x = layer(x, *asked, *self._masks(kind, memory), memory=memory, layer=i)
        x = x if self.last is None or x.shape[3] == 1 else x[:, :, :, self.last : self.last + 1]
        x = x if self.norm is None else self.norm(x)
        return (_ane.to_sequence(self.head(x)),)

    def _masks(self, kind, memory: _cache.Memory | None) -> list:
        terms = tuple(getattr(self, f"mask_{kind}_{i}") for i in range(self.sizes[kind]))
        terms = terms if memory is None else tuple(memory.row(term, 3) for term in terms)
        return [terms[0] if len(terms) == 1 else terms] if terms else []


def original(family: Family, model: dict, state: dict[str, Tensor], seq_len: int, options: Options, last: int | None):
    """Hugging Face's module as it is."""
    hf = _hf.filled(lambda: family.skeleton(model), state)
    if family.prepare:
        family.prepare(hf, seq_len)
    if options.cache != "none":
        _hf.tabulate_rotary(hf, seq_len)
    mask = _masks.causal(hf.config, seq_len, options.mask)
    return Original(hf, mask, family.takes_positions, last, family.follow)


def split_einsum(
    family: Family, model: dict, state: dict[str, Tensor], seq_len: int, options: Options, last: int | None
):
    """The same function in Neural Engine form, on the same tensors."""
    config, read = family.configure(model), _ane.Reader(state)
    positions = None
    if family.positions:
        positions = read[f"{family.positions}.weight"][family.position_offset :][:seq_len]
    project = [read.conv(n) if read.get(f"{n}.weight") is not None else None for n in family.project or ()]
    table = read[f"{family.table}.weight"]
    into, out = project or (None, None)
    embedding = _ane.Embedding(table, positions, family.embedding_scale(config), into)
    weight, bias = read.get(f"{family.head}.weight"), read.get(f"{family.head}.bias")
    head = _ane.Head(table if weight is None else weight, bias, options.lm_head_splits, out)
    if head.parts[0].weight.shape == embedding.table.shape and weight is None:
        head.parts[0].weight = embedding.table  # one parameter, so that the converter writes one tensor
    final = family.final(config) if callable(family.final) else family.final
    norms = [name and _norm(family, config, read, name) for name in (family.embedding_norm, final)]
    layers = _layers(family, config, state, seq_len)
    kinds = [family.window(config, i) for i in range(config.num_hidden_layers)]
    masks = {kind: _mask(family, config, seq_len, kind, options.mask == "causal_const") for kind in set(kinds)}
    return SplitEinsum(embedding, norms[0], layers, kinds, masks, norms[1], head, last)


def _mask(family: Family, config, seq_len: int, window: int | None, causal: bool) -> list[Tensor]:
    """What is added to the scores, (1, S_key, 1, S_query) each: nothing, one for all heads, or one a head.

    Without `causal` (it comes as an input) only what that input does not know: the window and ALiBi.
    ALiBi by distance, not by key position as Hugging Face has it: softmax sees no difference (each query's row is
    shifted by a constant), and fp16 keeps small distances exactly where positions in the thousands lose theirs.
    """
    steps = torch.arange(seq_len)
    back = steps[None, :] - steps[:, None]  # key by query: how far back the key is
    seen = back >= 0 if causal else torch.ones_like(back, dtype=torch.bool)
    seen = seen if window is None else seen & (back < window)
    mask = torch.where(seen, 0.0, _hf.MASKED)
    if family.alibi:
        distances = -back.clamp(min=0).float()
        return [(mask + slope * distances)[None, :, None, :] for slope in family.alibi(config)]
    return [mask[None, :, None, :].contiguous()] if causal or (window or seq_len) < seq_len else []


def _layers(family: Family, config, state: dict[str, Tensor], seq_len: int) -> list[_ane.Layer]:
    heads, kv_heads = config.num_attention_heads, key_heads(config)
    rotary = None
    if family.rotary:
        cos, sin, turn = family.rotary(config, seq_len)
        each = {count: _ane.Rotary(cos, sin, turn, count) for count in (heads, kv_heads)}
        rotary = (each[heads], each[kv_heads])
    found = []
    for i in range(config.num_hidden_layers):
        read = _ane.Reader(state, family.layer.format(i))
        scale = family.scale(config, i) if family.scale else head_width(config) ** -0.5
        head_norms = None
        if family.head_norms:
            head_norms = tuple(_ane.HeadNorm(read[f"{name}.weight"], eps(family, config)) for name in family.head_norms)
        attention = _ane.Attention(*family.attention(config, read), heads, scale, kv_heads, head_norms, rotary)
        first, second = (name and _norm(family, config, read, name) for name in family.norms)
        found.append(_ane.Layer(first, attention, second, _feed_forward(family, config, read), family.wiring(config)))
    return found


def _feed_forward(family: Family, config, read: _ane.Reader) -> _ane.FeedForward:
    *gate, up, down = (read.conv(name, transposed=family.transposed) for name in family.feed_forward)
    act = family.activation or first_of(config, "activation_function", "hidden_act")
    return _ane.FeedForward(up, down, act, *gate)


def _norm(family: Family, config, read: _ane.Reader, name: str) -> nn.Module:
    if family.rms:
        return read.rms_norm(name, eps(family, config), family.norm_offset)
    return read.layer_norm(name, eps(family, config))


def eps(family: Family, config) -> float:
    return (
        family.eps(config) if family.eps else first_of(config, "layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps")
    )

"""The decoder that all language models here share: input_ids (1,S) -> logits (1,S,V), the whole window at once.

A family declares in a `DecoderFamily` the names in its checkpoint and its differences; this file builds both variants.
There is no attention mask by default: the causal one is a constant, and texts shorter than the window are padded on
the right, out of every real token's sight.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ane_sweep.bridge.building import DECODE, PLAIN, POSITION, PREFILL, Options
from ane_sweep.worker import rewrites
from ane_sweep.worker.models import _ane, _cache, _hf, _masks
from ane_sweep.worker.models._layouts import FindConvs, RotaryTables, head_width, key_heads
from ane_sweep.worker.models._ports import Port, Ports
from ane_sweep.worker.models._types import Dynamic, Model

Follow = Callable[[nn.Module, _cache.Memory], None]


@dataclass(frozen=True)
class DecoderFamily:
    """The names of a family's tensors and its peculiarities. Callables take Hugging Face's config first.

    hf, config     classes of transformers
    table          token embeddings; `positions` are learned ones, read from row `position_offset` on
    layer          prefix of a block, with {} for its index; `norms` of the block (the second None: one for both)
    attention      (config, reader of the block) -> query, key, value and output convolutions
    feed_forward   names: (up, down) or (gate, up, down)
    final          the norm before the head, or None; or a function of the config that returns either
    project        names of convolutions after the lookup and before the head (OPT), if the state has them
    rotary         (config, S) -> cos (d,S), sin (d,S), turn (d,d)
    alibi          config -> one slope a head; slope * (key position - query position) is added to a score
    window         (config, layer) -> number of tokens that a layer looks back on, or None for all
    scale          (config, layer) -> factor on the scores; None: 1 / sqrt(head dim)
    head_norms     names of RMS norms over each query head and each key head
    takes_positions  Hugging Face's module takes position_ids
    prepare        (Hugging Face's module, S): changes the module so that it works with a ready mask
    follow         (Hugging Face's module, memory): sets the position in the module before each call with a cache
    """

    hf: str
    config: str
    table: str
    layer: str
    norms: tuple[str, str | None]
    attention: FindConvs
    feed_forward: tuple[str, ...]
    final: str | Callable[[Dynamic], str | None]
    positions: str | None = None
    position_offset: int = 0
    embedding_norm: str | None = None
    embedding_scale: Callable[[Dynamic], float] = lambda config: 1.0
    project: tuple[str, str] | None = None
    head: str = "lm_head"
    rms: bool = False
    norm_offset: float = 0.0
    eps: Callable[[Dynamic], float] | None = None
    activation: str | None = None
    transposed: bool = False
    wiring: Callable[[Dynamic], str] = lambda config: "pre"
    rotary: Callable[[Dynamic, int], RotaryTables] | None = None
    alibi: Callable[[Dynamic], Tensor] | None = None
    window: Callable[[Dynamic, int], int | None] = lambda config, layer: None
    scale: Callable[[Dynamic, int], float] | None = None
    head_norms: tuple[str, str] | None = None
    takes_positions: bool = True
    prepare: Callable[[nn.Module, int], None] | None = None
    follow: Follow | None = None

    def configure(self, model: Model) -> Dynamic:
        return _hf.configure(self.config, model)

    def skeleton(self, model: Model) -> nn.Module:
        """Build Hugging Face's module with its language-model head. Raises ValueError for another task."""
        _hf.check_task(model, "causal_lm")
        return _hf.build(self.hf, self.configure(model))

    def ports(self, model: Model, seq_len: int, options: Options = PLAIN, function: str = PREFILL) -> Ports:
        """Return inputs and outputs of prefill or of decode (`_cache.py`), the same for both variants."""
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
        """Builders of `original` and of `split_einsum`."""
        return partial(_build, self, build_original), partial(_build, self, build_split_einsum)


def _embedding_width(config: Dynamic) -> int:
    return getattr(config, "word_embed_proj_dim", None) or config.hidden_size


def _build(
    family: DecoderFamily,
    make: Callable[..., nn.Module],
    model: Model,
    state: dict[str, Tensor],
    seq_len: int,
    options: Options = PLAIN,
) -> nn.Module:
    """Build one variant, in eval mode, and pad it inside if the options say so."""
    length = options.padded(seq_len)
    inside = replace(options, mask="causal_input") if options.mask == "band_part" else options
    module = make(family, model, state, length, inside, seq_len - 1 if options.head == "last" else None)
    whole = _masks.BandPart(module) if options.mask == "band_part" else module
    whole = rewrites.rewrite_module(whole, family.ports(model, seq_len, options), options)
    if options.cache != "none":
        config = family.configure(model)
        heads, width = key_heads(config), head_width(config)
        shape, axis = ((1, heads, length, width), 2) if make is build_original else ((1, heads * width, 1, length), 3)
        kind = _cache.StatefulCache if options.cache == "stateful" else _cache.ExplicitCache
        whole = kind(whole, module, config.num_hidden_layers, shape, axis, length - seq_len)
    return whole.eval()


class OriginalDecoder(nn.Module):
    """The Hugging Face module, which is given the causal mask and the positions ready.

    `follow` is the family's, for calls with a cache.
    """

    mask: Tensor
    position_ids: Tensor

    def __init__(
        self, hf: nn.Module, mask: Tensor, takes_positions: bool, last: int | None, follow: Follow | None = None
    ):
        super().__init__()
        self.hf, self.takes_positions, self.follow = hf, takes_positions, follow
        self.keep = None if last is None else torch.tensor([last])
        self.register_buffer("position_ids", torch.arange(mask.shape[-1])[None], persistent=False)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens: Tensor, *masks: Tensor, memory: _cache.Memory | None = None) -> tuple[Tensor, ...]:
        position_ids, keep = self.position_ids, self.keep
        more: dict[str, object] = {}
        mask = masks[0] if masks else self.mask
        if memory is not None:
            more["past_key_values"] = _cache.HuggingFaceCache(memory)
            mask = mask if masks else memory.row(mask, 2)
            if memory.position is not None:
                position_ids, keep = memory.position[None], None
            if self.follow:
                self.follow(self.hf, memory)
        if len(masks) > 1:
            mask = mask + _hf.make_additive_mask(masks[1])
        more |= {"position_ids": position_ids} if self.takes_positions else {}
        more |= {} if keep is None else {"logits_to_keep": keep}
        name = "inputs_embeds" if tokens.is_floating_point() else "input_ids"
        output = self.hf(**{name: tokens}, attention_mask=mask, use_cache=False, return_dict=False, **more)
        return (output[0],)


class SplitEinsumDecoder(nn.Module):
    """Decoder on (B, C, 1, S). `kinds` are the windows of the layers; layers with the same window share `masks`.

    A causal mask that is an input comes query by key, as Hugging Face lays it out, and is turned once.
    """

    def __init__(
        self,
        embedding: _ane.Embedding,
        embedding_norm: nn.Module | None,
        layers: list[_ane.Layer],
        kinds: list[int | None],
        masks: dict[int | None, list[Tensor]],
        norm: nn.Module | None,
        head: _ane.Head,
        last: int | None,
    ):
        super().__init__()
        self.embedding, self.embedding_norm, self.norm, self.head = embedding, embedding_norm, norm, head
        self.layers, self.kinds, self.last = nn.ModuleList(layers), kinds, last
        self.sizes = {kind: len(terms) for kind, terms in masks.items()}
        for kind, terms in masks.items():
            for head_index, term in enumerate(terms):
                self.register_buffer(f"mask_{kind}_{head_index}", term, persistent=False)

    def forward(self, tokens: Tensor, *masks: Tensor, memory: _cache.Memory | None = None) -> tuple[Tensor, ...]:
        x = self.embedding(tokens, memory)
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        turned = [masks[0].permute(0, 3, 1, 2)] if masks else []  # (1, S_key, 1, S_query)
        turned += [((1.0 - mask) * _hf.MASKED)[:, :, None, None] for mask in masks[1:]]
        for i, (layer, kind) in enumerate(zip(self.layers, self.kinds)):
            x = layer(x, *turned, *self._masks(kind, memory), memory=memory, layer=i)
        x = x if self.last is None or x.shape[3] == 1 else x[:, :, :, self.last : self.last + 1]
        x = x if self.norm is None else self.norm(x)
        return (_ane.to_sequence(self.head(x)),)

    def _masks(self, kind: int | None, memory: _cache.Memory | None) -> list[_ane.Mask]:
        terms: tuple[Tensor, ...] = tuple(getattr(self, f"mask_{kind}_{i}") for i in range(self.sizes[kind]))
        terms = terms if memory is None else tuple(memory.row(term, 3) for term in terms)
        return [terms[0] if len(terms) == 1 else terms] if terms else []


def build_original(
    family: DecoderFamily, model: Model, state: dict[str, Tensor], seq_len: int, options: Options, last: int | None
) -> nn.Module:
    """Build Hugging Face's module with its own layers."""
    hf = _hf.build_filled(lambda: family.skeleton(model), state)
    if family.prepare:
        family.prepare(hf, seq_len)
    if options.cache != "none":
        _hf.tabulate_rotary(hf, seq_len)
    mask = _masks.make_causal(family.configure(model), seq_len, options.mask)
    return OriginalDecoder(hf, mask, family.takes_positions, last, family.follow)


def build_split_einsum(
    family: DecoderFamily, model: Model, state: dict[str, Tensor], seq_len: int, options: Options, last: int | None
) -> nn.Module:
    """Build the same function in Neural Engine form, on the same tensors."""
    config, read = family.configure(model), _ane.Reader(state)
    positions = None
    if family.positions:
        positions = read[f"{family.positions}.weight"][family.position_offset :][:seq_len]
    project = [read.conv(n) if read.get(f"{n}.weight") is not None else None for n in family.project or ()]
    table = read[f"{family.table}.weight"]
    into, out = project or (None, None)
    embedding = _ane.Embedding(table, positions, family.embedding_scale(config), into)
    weight, bias = read.get(f"{family.head}.weight"), read.get(f"{family.head}.bias")
    head = _ane.Head(table if weight is None else weight, bias, out)
    if weight is None:
        head.tie(embedding)
    final = family.final(config) if callable(family.final) else family.final
    norms = [_norm(family, config, read, name) if name else None for name in (family.embedding_norm, final)]
    layers = _layers(family, config, state, seq_len)
    kinds = [family.window(config, i) for i in range(config.num_hidden_layers)]
    masks = {kind: _mask(family, config, seq_len, kind, options.mask == "causal_const") for kind in set(kinds)}
    return SplitEinsumDecoder(embedding, norms[0], layers, kinds, masks, norms[1], head, last)


def _mask(family: DecoderFamily, config: Dynamic, seq_len: int, window: int | None, causal: bool) -> list[Tensor]:
    """Return the masks that are added to the scores, (1, S_key, 1, S_query) each: none, one for all heads, or one a head.

    Without `causal` the causal mask is an input, and the masks hold the window and ALiBi alone.
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


def _layers(family: DecoderFamily, config: Dynamic, state: dict[str, Tensor], seq_len: int) -> list[_ane.Layer]:
    heads, kv_heads = config.num_attention_heads, key_heads(config)
    rotary = None
    if family.rotary:
        cos, sin, turn = family.rotary(config, seq_len)
        each = {count: _ane.Rotary(cos, sin, turn, count) for count in (heads, kv_heads)}
        rotary = (each[heads], each[kv_heads])
    layers = []
    for i in range(config.num_hidden_layers):
        read = _ane.Reader(state, family.layer.format(i))
        scale = family.scale(config, i) if family.scale else head_width(config) ** -0.5
        head_norms = None
        if family.head_norms:
            query, key = (
                _ane.HeadNorm(read[f"{name}.weight"], norm_epsilon(family, config)) for name in family.head_norms
            )
            head_norms = query, key
        attention = _ane.Attention(*family.attention(config, read), heads, scale, kv_heads, head_norms, rotary)
        first = _norm(family, config, read, family.norms[0])
        second = _norm(family, config, read, family.norms[1]) if family.norms[1] else None
        layers.append(_ane.Layer(first, attention, second, _feed_forward(family, config, read), family.wiring(config)))
    return layers


def _feed_forward(family: DecoderFamily, config: Dynamic, read: _ane.Reader) -> _ane.FeedForward:
    *gate, up, down = (read.conv(name, transposed=family.transposed) for name in family.feed_forward)
    act = family.activation or _first_attribute(config, "activation_function", "hidden_act")
    return _ane.FeedForward(up, down, act, *gate)


def _first_attribute(config: Dynamic, *names: str) -> Any:
    return next(value for name in names if (value := getattr(config, name, None)) is not None)


def _norm(family: DecoderFamily, config: Dynamic, read: _ane.Reader, name: str) -> nn.Module:
    if family.rms:
        return read.rms_norm(name, norm_epsilon(family, config), family.norm_offset)
    return read.layer_norm(name, norm_epsilon(family, config))


def norm_epsilon(family: DecoderFamily, config: Dynamic) -> float:
    if family.eps:
        return family.eps(config)
    return _first_attribute(config, "layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps")

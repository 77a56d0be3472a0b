"""The decoder that all language models here share: input_ids (1,S) -> logits (1,S,V), the whole window at once.

A family declares in a `DecoderFamily` the names in its checkpoint and its differences; this file builds both variants.
There is no attention mask by default: the causal one is a constant, and texts shorter than the window are padded on
the right, where no real token sees the padding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ane_sweep.bridge.building import DECODE, PLAIN, POSITION, PREFILL, Options
from ane_sweep.worker import rewrites
from ane_sweep.worker.models import _ane, _cache, _hf
from ane_sweep.worker.models._family import Family
from ane_sweep.worker.models._layouts import FindConvs, RotaryTables, head_width, key_heads
from ane_sweep.worker.models._ports import Port, Ports
from ane_sweep.worker.models._types import Dynamic, Model

Follow = Callable[[nn.Module, _cache.Memory], None]


@dataclass(frozen=True, kw_only=True)
class DecoderFamily(Family):
    """The names of a family's tensors and its peculiarities. Callables take Hugging Face's config first.

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

    table: str
    layer: str
    norms: tuple[str, str | None]
    attention: FindConvs
    feed_forward: tuple[str, ...]
    final: str | Callable[[Dynamic], str | None] | None
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

    def ports(self, model: Model, seq_len: int, options: Options = PLAIN, function: str = PREFILL) -> Ports:
        """Return inputs and outputs of prefill or of decode (`_cache.py`), the same for both variants."""
        decode = function == DECODE
        length = 1 if decode else seq_len
        width = None
        if options.embeddings == "out":
            config = self.configure(model)
            width = (1, length, getattr(config, "word_embed_proj_dim", None) or config.hidden_size)
        tokens = [Port("inputs_embeds", width, "float32") if width else Port("input_ids", (1, length), "int32")]
        tokens += [Port(POSITION, (1,), "int32")] if decode else []
        masks = [Port("causal_mask", (1, 1, length, seq_len), "float32"), Port("key_mask", (1, seq_len), "float32")]
        count = {"causal_input": 1, "qk_and_k": 2}.get(options.mask, 0)
        positions = 1 if options.head == "last" else length
        logits = Port("logits", (1, positions, model["arch"]["vocab_size"]), "float32")
        return Ports((*tokens, *masks[:count]), (logits,))

    def original(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build Hugging Face's module with its own layers."""
        config, length = self.configure(model), options.padded(seq_len)
        hf = _hf.build_filled(lambda: self.skeleton(model), state)
        if self.prepare:
            self.prepare(hf, length)
        if options.cache != "none":
            _hf.tabulate_rotary(hf, length)
        mask = _hf.make_causal_mask(length, config.num_attention_heads if options.mask == "causal_per_head" else 1)
        last = seq_len - 1 if options.head == "last" else None
        module = OriginalDecoder(hf, mask, self.takes_positions, last, self.follow)
        return self._complete(module, model, seq_len, options, (1, key_heads(config), length, head_width(config)))

    def split_einsum(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build the encoder in the form for the Neural Engine, with Hugging Face's weights."""
        config, length = self.configure(model), options.padded(seq_len)
        last = seq_len - 1 if options.head == "last" else None
        module = SplitEinsumDecoder(self, config, state, length, options.mask == "causal_const", last)
        shape = (1, key_heads(config) * head_width(config), 1, length)
        return self._complete(module, model, seq_len, options, shape)

    def _complete(
        self, module: nn.Module, model: Model, seq_len: int, options: Options, state_shape: tuple[int, ...]
    ) -> nn.Module:
        """Return the module, padded inside and with a cache if the options say so, in eval mode."""
        prefill = BandPart(module) if options.mask == "band_part" else module
        prefill = rewrites.rewrite_module(prefill, self.ports(model, seq_len, options), options)
        if options.cache != "none":
            layers, length = self.configure(model).num_hidden_layers, options.padded(seq_len)
            axis = 2 if isinstance(module, OriginalDecoder) else 3
            prefill = _cache.KeyValueCache(
                prefill, module, layers, state_shape, axis, length - seq_len, options.cache == "stateful"
            )
        return prefill.eval()

    def norm(self, config: Dynamic, read: _ane.Reader, name: str) -> nn.Module:
        if self.rms:
            return read.rms_norm(name, self.epsilon(config), self.norm_offset)
        return read.layer_norm(name, self.epsilon(config))

    def epsilon(self, config: Dynamic) -> float:
        if self.eps:
            return self.eps(config)
        return _first_attribute(config, "layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps")

    def block(self, config: Dynamic, read: _ane.Reader, layer: int, rotary: "Rotaries | None") -> _ane.Layer:
        scale = self.scale(config, layer) if self.scale else head_width(config) ** -0.5
        norms = None
        if self.head_norms:
            query, key = (_ane.HeadNorm(read[f"{name}.weight"], self.epsilon(config)) for name in self.head_norms)
            norms = query, key
        attention = _ane.Attention(
            *self.attention(config, read), config.num_attention_heads, scale, key_heads(config), norms, rotary
        )
        *gate, up, down = (read.conv(name, transposed=self.transposed) for name in self.feed_forward)
        act = self.activation or _first_attribute(config, "activation_function", "hidden_act")
        first, second = (self.norm(config, read, name) if name else None for name in self.norms)
        assert first is not None, "a block has a norm"
        return _ane.Layer(first, attention, second, _ane.FeedForward(up, down, act, *gate), self.wiring(config))


Rotaries = tuple[_ane.Rotary, _ane.Rotary]


def _first_attribute(config: Dynamic, *names: str) -> Any:
    return next(value for name in names if (value := getattr(config, name, None)) is not None)


class OriginalDecoder(nn.Module):
    """The Hugging Face module with the causal mask and the positions passed in.

    `follow` is the family's function of that name, for calls with a cache.
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


class BandPart(nn.Module):
    """A module that computes a causal mask from the tokens' shape and passes it to `inner`.

    band_part is the op into which coremltools 6 turned a triangular mask, at the beginning of programs. The Neural Engine
    does not run it (more-ane-transformers notes, 4 April 2023: three of four chunks of pythia-2.8b began with it). Today's
    converter folds a triangle of constants; one of the shape of a value that only a call knows stays in the program.
    """

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor, memory: _cache.Memory | None = None) -> tuple[Tensor, ...]:
        row = (tokens[:1] if tokens.dim() == 2 else tokens[:1, :, 0]).float()[:, None, None, :]  # (1, 1, 1, S)
        seen = torch.ones_like(row.transpose(2, 3) * row).tril()
        return self.inner(tokens, (1.0 - seen) * _hf.MASKED, memory=memory)


class SplitEinsumDecoder(nn.Module):
    """Decoder on (B, C, 1, S). `kinds` are the windows of the layers; layers with the same window share masks.

    A causal mask that is an input (without `causal`) comes query by key, as Hugging Face lays it out, and is turned once.
    """

    def __init__(
        self,
        family: DecoderFamily,
        config: Dynamic,
        state: dict[str, Tensor],
        seq_len: int,
        causal: bool,
        last: int | None,
    ):
        super().__init__()
        read = _ane.Reader(state)
        positions = None
        if family.positions:
            positions = read[f"{family.positions}.weight"][family.position_offset :][:seq_len]
        project = [read.conv(n) if read.get(f"{n}.weight") is not None else None for n in family.project or ()]
        into, out = project or (None, None)
        table = read[f"{family.table}.weight"]
        self.embedding = _ane.Embedding(table, positions, family.embedding_scale(config), into)
        weight, bias = read.get(f"{family.head}.weight"), read.get(f"{family.head}.bias")
        self.head = _ane.Head(table if weight is None else weight, bias, out)
        if weight is None:
            self.head.tie(self.embedding)
        final = family.final(config) if callable(family.final) else family.final
        self.embedding_norm, self.norm = (
            family.norm(config, read, name) if name else None for name in (family.embedding_norm, final)
        )
        rotary = None
        if family.rotary:
            cos, sin, turn = family.rotary(config, seq_len)
            heads, kv_heads = config.num_attention_heads, key_heads(config)
            each = {count: _ane.Rotary(cos, sin, turn, count) for count in (heads, kv_heads)}
            rotary = (each[heads], each[kv_heads])
        indices = range(config.num_hidden_layers)
        self.layers = nn.ModuleList(
            [family.block(config, read.under(family.layer.format(i)), i, rotary) for i in indices]
        )
        self.kinds, self.last = [family.window(config, i) for i in indices], last
        masks = {kind: _mask(family, config, seq_len, kind, causal) for kind in set(self.kinds)}
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


def _mask(family: DecoderFamily, config: Dynamic, seq_len: int, window: int | None, causal: bool) -> list[Tensor]:
    """Return the masks that are added to the scores, (1, S_key, 1, S_query) each: none, one for all heads, or one a head.

    Without `causal` the causal mask is an input, and the masks hold the window and ALiBi alone. ALiBi is computed by
    distance, not by key position as in Hugging Face: softmax sees no difference (each query's row is shifted by a
    constant), and fp16 keeps small distances exactly where positions in the thousands lose theirs.
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

"""The encoder that BERT and its kin share: input_ids and attention_mask (1,S) -> last_hidden_state (1,S,H), or logits
(1,num_labels) of a classifier on the first token. A family declares the names in its checkpoint in an `EncoderFamily`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.worker import rewrites
from ane_sweep.worker.models import _ane, _hf
from ane_sweep.worker.models._ports import Port, Ports, hidden_output
from ane_sweep.worker.models._types import Dynamic, Model


@dataclass(frozen=True)
class EncoderFamily:
    """The names of a family's tensors and its peculiarities.

    build          model -> Hugging Face's module; raises ValueError for a task that the family does not know
    config         class of transformers
    prefix         task -> the prefix of all names below
    positions      learned ones, read from row `position_offset` on; `segments` name or None: its row 0 is added
    attention, feed_forward, norms   names in a block: query, key, value, out; up, down; after either of the two
    classifier     names of the classifier's hidden and output layer
    """

    build: Callable[[Model], nn.Module]
    config: str
    table: str
    positions: str
    norm: str
    layer: str
    attention: tuple[str, str, str, str]
    feed_forward: tuple[str, str]
    norms: tuple[str, str]
    eps: Callable[[Dynamic], float]
    activation: str
    prefix: Callable[[str], str] = lambda task: ""
    segments: str | None = None
    position_offset: Callable[[Dynamic], int] = lambda config: 0
    classifier: tuple[str, str] | None = None

    def configure(self, model: Model) -> Dynamic:
        return _hf.configure(self.config, model)

    def skeleton(self, model: Model) -> nn.Module:
        """Build Hugging Face's module for the model's task, without heads that are not used."""
        return self.build(model)

    def ports(self, model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
        """Return inputs and outputs under these options, the same for both variants."""
        config = self.configure(model)
        tokens = Port("input_ids", (1, seq_len), "int32")
        if options.embeddings == "out":
            tokens = Port("inputs_embeds", (1, seq_len, config.hidden_size), "float32")
        inputs = (tokens, Port("attention_mask", (1, seq_len), "float32"))
        if KINDS[model["task"]].leaves == "labels":
            return Ports(inputs, (Port("logits", (1, config.num_labels), "float32"),))
        return Ports(inputs, hidden_output(seq_len, config.hidden_size))

    @property
    def variants(self) -> tuple[Callable[..., nn.Module], Callable[..., nn.Module]]:
        return partial(_build, self, build_original), partial(_build, self, build_split_einsum)


def _build(
    family: EncoderFamily,
    make: Callable[..., nn.Module],
    model: Model,
    state: dict[str, Tensor],
    seq_len: int,
    options: Options = PLAIN,
) -> nn.Module:
    """Build one variant, in eval mode, and pad it inside if the options say so."""
    module = make(family, model, state, options.padded(seq_len))
    return rewrites.rewrite_module(module, family.ports(model, seq_len, options), options).eval()


class OriginalEncoder(nn.Module):
    """The Hugging Face module, which is given mask, positions and segment ids ready."""

    position_ids: Tensor
    token_type_ids: Tensor

    def __init__(self, hf: nn.Module, seq_len: int, offset: int, segments: bool):
        super().__init__()
        self.hf, self.segments = hf, segments
        self.register_buffer("position_ids", torch.arange(offset, offset + seq_len)[None], persistent=False)
        self.register_buffer("token_type_ids", torch.zeros((1, seq_len), dtype=torch.long), persistent=False)

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        more = {"token_type_ids": self.token_type_ids} if self.segments else {}
        name = "inputs_embeds" if tokens.is_floating_point() else "input_ids"
        mask = _hf.make_additive_mask(attention_mask)
        output = self.hf(
            **{name: tokens}, attention_mask=mask, position_ids=self.position_ids, return_dict=False, **more
        )
        return (output[0],)


class SplitEinsumEncoder(nn.Module):
    """Post-norm encoder on (B, C, 1, S); with `heads`, a classifier on its first position."""

    def __init__(
        self, embedding: _ane.Embedding, norm: _ane.LayerNorm, layers: list[_ane.Layer], heads: list[_ane.Conv1x1]
    ):
        super().__init__()
        self.embedding, self.norm = embedding, norm
        self.layers, self.heads = nn.ModuleList(layers), nn.ModuleList(heads)

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        x = self.norm(self.embedding(tokens))
        # (1,S) -> (1,S_key,1,1): a key is masked for every query.
        mask = ((1.0 - attention_mask) * _hf.MASKED)[:, :, None, None]
        for layer in self.layers:
            x = layer(x, mask)
        if not self.heads:
            return (_ane.to_sequence(x),)
        hidden, labels = self.heads
        return (labels(torch.relu(hidden(x[:, :, :, 0:1]))).squeeze(3).squeeze(2),)


def build_original(family: EncoderFamily, model: Model, state: dict[str, Tensor], seq_len: int) -> nn.Module:
    """Build Hugging Face's module with its own layers."""
    offset = family.position_offset(family.configure(model))
    return OriginalEncoder(
        _hf.build_filled(lambda: family.skeleton(model), state), seq_len, offset, family.segments is not None
    )


def build_split_einsum(family: EncoderFamily, model: Model, state: dict[str, Tensor], seq_len: int) -> nn.Module:
    """Build the same function in Neural Engine form, on the same tensors."""
    config = family.configure(model)
    read = _ane.Reader(state, family.prefix(model["task"]))
    positions = read[f"{family.positions}.weight"][family.position_offset(config) :][:seq_len]
    if family.segments:
        positions = positions + read[f"{family.segments}.weight"][0]
    embedding = _ane.Embedding(read[f"{family.table}.weight"], positions)
    layers = [_layer(family, config, read.under(family.layer.format(i))) for i in range(config.num_hidden_layers)]
    heads = [
        _ane.Reader(state).conv(name) for name in family.classifier or () if KINDS[model["task"]].leaves == "labels"
    ]
    return SplitEinsumEncoder(embedding, read.layer_norm(family.norm, family.eps(config)), layers, heads)


def _layer(family: EncoderFamily, config: Dynamic, read: _ane.Reader) -> _ane.Layer:
    query, key, value, out = (read.conv(name) for name in family.attention)
    scale = (config.hidden_size // config.num_attention_heads) ** -0.5
    up, down = (read.conv(name) for name in family.feed_forward)
    first, second = (read.layer_norm(name, family.eps(config)) for name in family.norms)
    attention = _ane.Attention(query, key, value, out, config.num_attention_heads, scale)
    feed_forward = _ane.FeedForward(up, down, getattr(config, family.activation))
    return _ane.Layer(first, attention, second, feed_forward, "post")

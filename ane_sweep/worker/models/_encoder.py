"""The encoder that BERT and similar models share: input_ids and attention_mask (1,S) -> last_hidden_state (1,S,H), or
for a classifier on the first token logits (1,num_labels). A family declares the names in its checkpoint in an
`EncoderFamily`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.worker import rewrites
from ane_sweep.worker.models import _ane, _hf
from ane_sweep.worker.models._family import Family
from ane_sweep.worker.models._ports import Port, Ports, hidden_output
from ane_sweep.worker.models._tower import BlockNames
from ane_sweep.worker.models._types import Dynamic, Model


@dataclass(frozen=True, kw_only=True)
class EncoderFamily(Family):
    """The names of a family's tensors and its peculiarities.

    prefix         of all names below where the module has a classifier, which has the names `classifier`: hidden, output
    positions      learned ones, read from row `position_offset` on; `segments` name or None: its row 0 is added
    block          names in a block, whose prefix is `layer`, with {} for its index; norms after either of the two
    """

    table: str
    positions: str
    norm: str
    layer: str
    block: BlockNames
    eps: Callable[[Dynamic], float]
    activation: str
    segments: str | None = None
    position_offset: Callable[[Dynamic], int] = lambda config: 0
    prefix: str = ""
    classifier: tuple[str, ...] = ()

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

    def original(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build Hugging Face's module with its own layers."""
        hf = _hf.build_filled(lambda: self.skeleton(model), state)
        offset, length = self.position_offset(self.configure(model)), options.padded(seq_len)
        module = OriginalEncoder(hf, length, offset, self.segments is not None)
        return rewrites.rewrite_module(module, self.ports(model, seq_len, options), options).eval()

    def split_einsum(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build the encoder in the form for the Neural Engine, with Hugging Face's weights."""
        classifies = KINDS[model["task"]].leaves == "labels"
        module = SplitEinsumEncoder(self, self.configure(model), state, options.padded(seq_len), classifies)
        return rewrites.rewrite_module(module, self.ports(model, seq_len, options), options).eval()


class OriginalEncoder(nn.Module):
    """The Hugging Face module with mask, positions and segment ids passed in."""

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
    """Post-norm encoder on (B, C, 1, S), with a classifier on its first position if it `classifies`."""

    def __init__(
        self, family: EncoderFamily, config: Dynamic, state: dict[str, Tensor], seq_len: int, classifies: bool
    ):
        super().__init__()
        read = _ane.Reader(state, family.prefix if classifies else "")
        positions = read[f"{family.positions}.weight"][family.position_offset(config) :][:seq_len]
        if family.segments:
            positions = positions + read[f"{family.segments}.weight"][0]
        eps, act = family.eps(config), getattr(config, family.activation)
        self.embedding = _ane.Embedding(read[f"{family.table}.weight"], positions)
        self.norm = read.layer_norm(family.norm, eps)
        blocks = [read.under(family.layer.format(i)) for i in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(
            [family.block.layer(block, config.num_attention_heads, eps, act, "post") for block in blocks]
        )
        self.heads = nn.ModuleList([_ane.Reader(state).conv(name) for name in family.classifier if classifies])

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

"""T5, Flan-T5, CodeT5: encoder and decoder in one program. Task: seq2seq.

input_ids, attention_mask and decoder_input_ids (1,S) -> last_hidden_state (1,S,H) of the encoder and logits (1,S,V) of
the decoder, which sees the encoder's last hidden state and its own whole window at once. One program with both is the
simplest one that tests all weights; it encodes again for each decoded window.

Positions are learned biases on the scores, one a head and distance: constants here, shared by a stack's layers.
"""

import torch
from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.bridge.families import Serves
from ane_sweep.worker import rewrites
from ane_sweep.worker.models import _ane, _hf
from ane_sweep.worker.models._family import Family
from ane_sweep.worker.models._ports import Port, Ports, hidden_output
from ane_sweep.worker.models._types import Dynamic, Model


class OriginalT5(nn.Module):
    """The Hugging Face module with both masks passed in."""

    causal: Tensor

    def __init__(self, hf: nn.Module, seq_len: int):
        super().__init__()
        self.hf = hf
        self.register_buffer("causal", _hf.make_causal_mask(seq_len), persistent=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> tuple[Tensor, ...]:
        output = self.hf(
            input_ids=input_ids,
            attention_mask=_hf.make_additive_mask(attention_mask),
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=self.causal,
            use_cache=False,
        )
        return output.encoder_last_hidden_state, output.logits


class CrossLayer(nn.Module):
    """A decoder's block: attention to itself, to the encoder, and the feed-forward, each after a norm."""

    def __init__(self, config: Dynamic, read: _ane.Reader):
        super().__init__()
        self.norms = nn.ModuleList(read.rms_norm(f"layer.{i}.layer_norm", config.layer_norm_epsilon) for i in range(3))
        self.attention = _attention(config, read, "layer.0.SelfAttention")
        self.cross = _attention(config, read, "layer.1.EncDecAttention")
        self.feed_forward = _feed_forward(config, read.under("layer.2."))

    def forward(self, x: Tensor, bias: tuple[Tensor, ...], encoded: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(self.norms[0](x), bias) + x
        x = self.cross(self.norms[1](x), mask, context=encoded) + x
        return self.feed_forward(self.norms[2](x)) + x


class SplitEinsumT5(nn.Module):
    """Both stacks on (B, C, 1, S). The biases are added to each stack's scores, one (1, S_key, 1, S_query) a head."""

    def __init__(self, config: Dynamic, state: dict[str, Tensor], seq_len: int):
        super().__init__()
        read, eps = _ane.Reader(state), config.layer_norm_epsilon
        table, weight = read["shared.weight"], read.get("lm_head.weight")
        scale = config.d_model**-0.5 if config.scale_decoder_outputs else 1.0
        self.embedding = _ane.Embedding(table)
        self.head = _ane.Head(table if weight is None else weight, scale=scale)
        if weight is None:
            self.head.tie(self.embedding)
        counts = range(config.num_layers), range(config.num_decoder_layers)
        self.encoder = nn.ModuleList([_encoder_layer(config, read.under(f"encoder.block.{i}.")) for i in counts[0]])
        self.encoder_norm = read.rms_norm("encoder.final_layer_norm", eps)
        self.decoder = nn.ModuleList([CrossLayer(config, read.under(f"decoder.block.{i}.")) for i in counts[1]])
        self.decoder_norm = read.rms_norm("decoder.final_layer_norm", eps)
        self.heads = config.num_heads
        for stack in ("encoder", "decoder"):
            for i, term in enumerate(_bias(config, read, stack, seq_len)):
                self.register_buffer(f"{stack}_bias_{i}", term, persistent=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> tuple[Tensor, ...]:
        mask = ((1.0 - attention_mask) * _hf.MASKED)[:, :, None, None]
        encoded = self.embedding(input_ids)
        for layer in self.encoder:
            encoded = layer(encoded, self._bias("encoder"), mask)
        encoded = self.encoder_norm(encoded)
        x = self.embedding(decoder_input_ids)
        for layer in self.decoder:
            x = layer(x, self._bias("decoder"), encoded, mask)
        return _ane.to_sequence(encoded), _ane.to_sequence(self.head(self.decoder_norm(x)))

    def _bias(self, stack: str) -> tuple[Tensor, ...]:
        return tuple(getattr(self, f"{stack}_bias_{i}") for i in range(self.heads))


def _attention(config: Dynamic, read: _ane.Reader, name: str) -> _ane.Attention:
    query, key, value, out = (read.conv(f"{name}.{part}") for part in "qkvo")
    return _ane.Attention(query, key, value, out, config.num_heads, 1.0)  # T5 does not scale its scores


def _feed_forward(config: Dynamic, read: _ane.Reader) -> _ane.FeedForward:
    if config.is_gated_act:
        gate, up = read.conv("DenseReluDense.wi_0"), read.conv("DenseReluDense.wi_1")
    else:
        gate, up = None, read.conv("DenseReluDense.wi")
    return _ane.FeedForward(up, read.conv("DenseReluDense.wo"), config.dense_act_fn, gate)


def _encoder_layer(config: Dynamic, read: _ane.Reader) -> _ane.Layer:
    first, second = (read.rms_norm(f"layer.{i}.layer_norm", config.layer_norm_epsilon) for i in range(2))
    attention = _attention(config, read, "layer.0.SelfAttention")
    return _ane.Layer(first, attention, second, _feed_forward(config, read.under("layer.1.")), "pre")


def _bias(config: Dynamic, read: _ane.Reader, stack: str, seq_len: int) -> list[Tensor]:
    """Return the learned bias of each head, (1, S_key, 1, S_query); the decoder's holds the causal mask too."""
    from transformers.models.t5.modeling_t5 import T5Attention

    steps = torch.arange(seq_len)
    ahead = steps[:, None] - steps[None, :]  # key by query: how far ahead the key is
    buckets = T5Attention._relative_position_bucket(
        ahead, stack == "encoder", config.relative_attention_num_buckets, config.relative_attention_max_distance
    )
    bias = read[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"][buckets]
    if stack == "decoder":
        bias = bias + torch.where(ahead > 0, _hf.MASKED, 0.0)[:, :, None]
    return [head[None, :, None, :].contiguous() for head in bias.unbind(2)]


class T5(Family):
    def build(self, model: Model, config: Dynamic) -> nn.Module:
        if config.scale_decoder_outputs:
            return super().build(model, config)
        # Flan-T5 has a head of its own. transformers 5 ties it to the table all the same and unties it when it finds both
        # in a checkpoint; here it is never tied.
        config.tie_word_embeddings = False
        module = super().build(model, config)
        stacks: Dynamic = module
        stacks.set_input_embeddings(stacks.shared)  # both use the one table
        return module

    def ports(self, model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
        """Return inputs and outputs, the same for both variants."""
        config = self.configure(model)
        kinds = {"input_ids": "int32", "attention_mask": "float32", "decoder_input_ids": "int32"}
        inputs = tuple(Port(name, (1, seq_len), dtype) for name, dtype in kinds.items())
        logits = Port("logits", (1, seq_len, config.vocab_size), "float32")
        return Ports(inputs, (*hidden_output(seq_len, config.d_model), logits))

    def original(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build Hugging Face's module with its own layers."""
        module = OriginalT5(_hf.build_filled(lambda: self.skeleton(model), state), options.padded(seq_len))
        return rewrites.rewrite_module(module, self.ports(model, seq_len), options).eval()

    def split_einsum(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build the encoder in the form for the Neural Engine, with Hugging Face's weights."""
        module = SplitEinsumT5(self.configure(model), state, options.padded(seq_len))
        return rewrites.rewrite_module(module, self.ports(model, seq_len), options).eval()


FAMILY = T5(
    config="T5Config",
    builds={"seq2seq": "T5ForConditionalGeneration"},
    ignored=(
        r"(encoder|decoder)\.embed_tokens\.weight$",  # `shared`, once more
        r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight$",
    ),
)
SERVES = Serves(
    architectures={"T5ForConditionalGeneration": "seq2seq"},
    model_types=("t5",),
    layers="num_layers",
    longest="n_positions",
    otherwise=512,
    norms="rms",
    gated="feed_forward_proj",
)

"""T5, Flan-T5, CodeT5: encoder and decoder in one program. Task: seq2seq.

input_ids, attention_mask and decoder_input_ids (1,S) -> last_hidden_state (1,S,H) of the encoder and logits (1,S,V) of
the decoder, which sees the encoder's last hidden state and its own whole window at once. One program that holds both
is the simplest that says something about all of the weights; it encodes anew for each decoded window.

Positions are learned biases on the scores, one a head and distance: constants here, shared by a stack's layers.
"""

import torch
from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.bridge.families import Serves
from ane_sweep.worker import rewrites
from ane_sweep.worker.models import _ane, _hf
from ane_sweep.worker.models._ports import Port, Ports, encoder_inputs, hidden_output
from ane_sweep.worker.models._types import Dynamic, Model

IGNORED = (
    r"(encoder|decoder)\.embed_tokens\.weight$",  # `shared`, once more
    r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight$",
)


def _config(model: Model) -> Dynamic:
    _hf.check_task(model, "seq2seq")
    return _hf.configure("T5Config", model)


def skeleton(model: Model) -> nn.Module:
    """Build Hugging Face's T5ForConditionalGeneration."""
    config = _config(model)
    if config.scale_decoder_outputs:
        return _hf.build("T5ForConditionalGeneration", config)
    # Flan-T5 has a head of its own. transformers 5 ties it to the table all the same and unties it when it finds both
    # in a checkpoint; here it is never tied.
    config.tie_word_embeddings = False
    module = _hf.build("T5ForConditionalGeneration", config)
    _share_embeddings(module)
    return module


def _share_embeddings(module: Dynamic) -> None:
    """Let both stacks use the one table."""
    module.set_input_embeddings(module.shared)


def ports(model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
    """Return inputs and outputs, the same for both variants."""
    config = _config(model)
    inputs = (*encoder_inputs(seq_len), Port("decoder_input_ids", (1, seq_len), "int32"))
    logits = Port("logits", (1, seq_len, config.vocab_size), "float32")
    return Ports(inputs, (*hidden_output(seq_len, config.d_model), logits))


class OriginalT5(nn.Module):
    """The Hugging Face module, which is given both masks ready."""

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

    def __init__(
        self,
        norms: list[_ane.RMSNorm],
        attention: _ane.Attention,
        cross: _ane.Attention,
        feed_forward: _ane.FeedForward,
    ):
        super().__init__()
        self.norms = nn.ModuleList(norms)
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward

    def forward(self, x: Tensor, bias: tuple[Tensor, ...], encoded: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(self.norms[0](x), bias) + x
        x = self.cross(self.norms[1](x), mask, context=encoded) + x
        return self.feed_forward(self.norms[2](x)) + x


class SplitEinsumT5(nn.Module):
    """Both stacks on (B, C, 1, S). `biases` are added to each stack's scores, one (1, S_key, 1, S_query) a head."""

    def __init__(
        self,
        embedding: _ane.Embedding,
        encoder: list[_ane.Layer],
        encoder_norm: nn.Module,
        decoder: list[CrossLayer],
        decoder_norm: nn.Module,
        head: _ane.Head,
        biases: list[list[Tensor]],
    ):
        super().__init__()
        self.embedding, self.head = embedding, head
        self.encoder, self.encoder_norm = nn.ModuleList(encoder), encoder_norm
        self.decoder, self.decoder_norm = nn.ModuleList(decoder), decoder_norm
        self.heads = len(biases[0])
        for stack, terms in zip(("encoder", "decoder"), biases):
            for i, term in enumerate(terms):
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


def original(model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
    """Build Hugging Face's module with its own layers."""
    module = OriginalT5(_hf.build_filled(lambda: skeleton(model), state), options.padded(seq_len))
    return rewrites.rewrite_module(module, ports(model, seq_len), options).eval()


def split_einsum(model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
    """Build the same function in Neural Engine form, on the same tensors."""
    config, length = _config(model), options.padded(seq_len)
    read = _ane.Reader(state)
    table = read["shared.weight"]
    embedding = _ane.Embedding(table)
    scale = config.d_model**-0.5 if config.scale_decoder_outputs else 1.0
    weight = read.get("lm_head.weight")
    head = _ane.Head(table if weight is None else weight, scale=scale)
    if weight is None:
        head.tie(embedding)
    encoder = [_encoder_layer(config, read.under(f"encoder.block.{i}.")) for i in range(config.num_layers)]
    decoder = [_decoder_layer(config, read.under(f"decoder.block.{i}.")) for i in range(config.num_decoder_layers)]
    norms = [read.rms_norm(f"{stack}.final_layer_norm", config.layer_norm_epsilon) for stack in ("encoder", "decoder")]
    biases = [_bias(config, read, stack, length) for stack in ("encoder", "decoder")]
    module = SplitEinsumT5(embedding, encoder, norms[0], decoder, norms[1], head, biases)
    return rewrites.rewrite_module(module, ports(model, seq_len), options).eval()


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


def _decoder_layer(config: Dynamic, read: _ane.Reader) -> CrossLayer:
    norms = [read.rms_norm(f"layer.{i}.layer_norm", config.layer_norm_epsilon) for i in range(3)]
    attention, cross = (_attention(config, read, name) for name in ("layer.0.SelfAttention", "layer.1.EncDecAttention"))
    return CrossLayer(norms, attention, cross, _feed_forward(config, read.under("layer.2.")))


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


SERVES = Serves(
    architectures={"T5ForConditionalGeneration": "seq2seq"},
    model_types=("t5",),
    layers="num_layers",
    longest="n_positions",
    otherwise=512,
    norms="rms",
    gated="feed_forward_proj",
)
VARIANTS = {"original": original, "split_einsum": split_einsum}

"""BERT encoders (BERT, MiniLM): input_ids and attention_mask (1,S) -> last_hidden_state (1,S,H). Task: encoder."""

import torch
from torch import Tensor, nn

from . import _ane, _hf
from ._ports import Ports, encoder_inputs, hidden_output

# The pooler, pre-training heads and a position counter that old checkpoints carry.
IGNORED = (
    r"(bert\.)?pooler\.",
    r"cls\.",
    r"(bert\.)?embeddings\.position_ids$",
    r"(bert\.)?embeddings\.token_type_ids$",
)


def skeleton(model: dict) -> nn.Module:
    """Hugging Face's BertModel without its pooler (nothing downstream of last_hidden_state is in the graph)."""
    from transformers import BertModel

    if model["task"] != "encoder":
        raise ValueError(f"family bert knows the task 'encoder', not {model['task']!r}")
    return BertModel(_config(model), add_pooling_layer=False)


def ports(model: dict, seq_len: int) -> Ports:
    return Ports(encoder_inputs(seq_len), hidden_output(seq_len, model["arch"]["hidden_size"]))


class Original(nn.Module):
    """The Hugging Face module, with mask, positions and segment ids given so that it need not guess them."""

    def __init__(self, hf: nn.Module, seq_len: int):
        super().__init__()
        self.hf = hf
        self.register_buffer("position_ids", torch.arange(seq_len)[None], persistent=False)
        self.register_buffer("token_type_ids", torch.zeros((1, seq_len), dtype=torch.long), persistent=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        hidden = self.hf(
            input_ids=input_ids,
            attention_mask=_hf.additive_mask(attention_mask),
            position_ids=self.position_ids,
            token_type_ids=self.token_type_ids,
            return_dict=False,
        )
        return (hidden[0],)


class SplitEinsumEncoder(nn.Module):
    """Post-norm encoder on (B, C, 1, S); `layers` hold attention, its norm, feed-forward, its norm."""

    def __init__(self, embedding: _ane.Embedding, norm: _ane.LayerNorm, layers: list[nn.ModuleList]):
        super().__init__()
        self.embedding, self.norm = embedding, norm
        self.layers = nn.ModuleList(layers)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.norm(self.embedding(input_ids))
        # (1,S) -> (1,S_key,1,1); what is masked is a key, whichever query looks at it.
        mask = ((1.0 - attention_mask) * _hf.MASKED)[:, :, None, None]
        for attention, attention_norm, feed_forward, feed_forward_norm in self.layers:
            x = attention_norm(attention(x, mask) + x)
            x = feed_forward_norm(feed_forward(x) + x)
        return x


class SplitEinsum(nn.Module):
    def __init__(self, encoder: SplitEinsumEncoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        return (_ane.to_sequence(self.encoder(input_ids, attention_mask)),)


def original(model: dict, state: dict[str, Tensor], seq_len: int) -> nn.Module:
    """Hugging Face's module as it is."""
    return Original(_hf.filled(lambda: skeleton(model), state), seq_len).eval()


def split_einsum(model: dict, state: dict[str, Tensor], seq_len: int) -> nn.Module:
    """The same function in Neural Engine form, on the same tensors."""
    config = _config(model)
    positions = state["embeddings.position_embeddings.weight"][:seq_len]
    segment = state["embeddings.token_type_embeddings.weight"][0]
    embedding = _ane.Embedding(state["embeddings.word_embeddings.weight"], positions + segment)
    layers = [_layer(config, state, f"encoder.layer.{i}.") for i in range(config.num_hidden_layers)]
    norm = _norm(state, "embeddings.LayerNorm", config.layer_norm_eps)
    return SplitEinsum(SplitEinsumEncoder(embedding, norm, layers)).eval()


def _config(model: dict):
    from transformers import BertConfig

    return BertConfig(**model["arch"], attn_implementation=_hf.ATTENTION)


def _layer(config, state: dict[str, Tensor], prefix: str) -> nn.ModuleList:
    def conv(name: str) -> _ane.Conv1x1:
        return _ane.Conv1x1(state[f"{prefix}{name}.weight"], state[f"{prefix}{name}.bias"])

    attention = _ane.Attention(
        conv("attention.self.query"),
        conv("attention.self.key"),
        conv("attention.self.value"),
        conv("attention.output.dense"),
        heads=config.num_attention_heads,
        scale=(config.hidden_size // config.num_attention_heads) ** -0.5,
    )
    feed_forward = _ane.FeedForward(conv("intermediate.dense"), conv("output.dense"), config.hidden_act)
    norms = [
        _norm(state, f"{prefix}{name}.LayerNorm", config.layer_norm_eps) for name in ("attention.output", "output")
    ]
    return nn.ModuleList([attention, norms[0], feed_forward, norms[1]])


def _norm(state: dict[str, Tensor], name: str, eps: float) -> _ane.LayerNorm:
    return _ane.LayerNorm(state[f"{name}.weight"], state[f"{name}.bias"], eps)


VARIANTS = {"original": original, "split_einsum": split_einsum}

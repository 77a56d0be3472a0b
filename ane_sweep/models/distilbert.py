"""DistilBERT: input_ids and attention_mask (1,S) -> last_hidden_state (1,S,H) (task encoder) or, with its sequence
classifier on the first token, logits (1,num_labels) (task classifier)."""

import torch
from torch import Tensor, nn

from . import _ane, _hf
from ._ports import Port, Ports, encoder_inputs, hidden_output
from .bert import SplitEinsum, SplitEinsumEncoder

# The masked-language-model head of the base checkpoints, and a position counter.
IGNORED = (r"vocab_(transform|layer_norm|projector)\.", r"(distilbert\.)?embeddings\.position_ids$")

_EPS = 1e-12  # a literal in Hugging Face's module, not a config key


def skeleton(model: dict) -> nn.Module:
    """Hugging Face's DistilBertModel, or DistilBertForSequenceClassification for the task classifier."""
    from transformers import DistilBertForSequenceClassification, DistilBertModel

    tasks = {"encoder": DistilBertModel, "classifier": DistilBertForSequenceClassification}
    if model["task"] not in tasks:
        raise ValueError(f"family distilbert knows the tasks {', '.join(tasks)}, not {model['task']!r}")
    return tasks[model["task"]](_config(model))


def ports(model: dict, seq_len: int) -> Ports:
    if model["task"] == "classifier":
        return Ports(encoder_inputs(seq_len), (Port("logits", (1, _config(model).num_labels), "float32"),))
    return Ports(encoder_inputs(seq_len), hidden_output(seq_len, model["arch"]["dim"]))


class Original(nn.Module):
    """The Hugging Face module, with mask and positions given so that it need not guess them."""

    def __init__(self, hf: nn.Module, seq_len: int):
        super().__init__()
        self.hf = hf
        self.register_buffer("position_ids", torch.arange(seq_len)[None], persistent=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        output = self.hf(
            input_ids=input_ids,
            attention_mask=_hf.additive_mask(attention_mask),
            position_ids=self.position_ids,
        )
        return (output[0],)


class SplitEinsumClassifier(nn.Module):
    def __init__(self, encoder: SplitEinsumEncoder, hidden: _ane.Conv1x1, labels: _ane.Conv1x1):
        super().__init__()
        self.encoder, self.hidden, self.labels = encoder, hidden, labels

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        first = self.encoder(input_ids, attention_mask)[:, :, :, 0:1]  # (1, C, 1, 1)
        return (self.labels(torch.relu(self.hidden(first))).squeeze(3).squeeze(2),)


def original(model: dict, state: dict[str, Tensor], seq_len: int) -> nn.Module:
    """Hugging Face's module as it is."""
    return Original(_hf.filled(lambda: skeleton(model), state), seq_len).eval()


def split_einsum(model: dict, state: dict[str, Tensor], seq_len: int) -> nn.Module:
    """The same function in Neural Engine form, on the same tensors."""
    config = _config(model)
    base = "distilbert." if model["task"] == "classifier" else ""
    embedding = _ane.Embedding(
        state[f"{base}embeddings.word_embeddings.weight"],
        state[f"{base}embeddings.position_embeddings.weight"][:seq_len],
    )
    layers = [_layer(config, state, f"{base}transformer.layer.{i}.") for i in range(config.n_layers)]
    encoder = SplitEinsumEncoder(embedding, _norm(state, f"{base}embeddings.LayerNorm"), layers)
    if model["task"] == "encoder":
        return SplitEinsum(encoder).eval()
    return SplitEinsumClassifier(encoder, _conv(state, "pre_classifier"), _conv(state, "classifier")).eval()


def _config(model: dict):
    from transformers import DistilBertConfig

    return DistilBertConfig(**model["arch"], attn_implementation=_hf.ATTENTION)


def _layer(config, state: dict[str, Tensor], prefix: str) -> nn.ModuleList:
    attention = _ane.Attention(
        *(_conv(state, f"{prefix}attention.{name}") for name in ("q_lin", "k_lin", "v_lin", "out_lin")),
        heads=config.n_heads,
        scale=(config.dim // config.n_heads) ** -0.5,
    )
    feed_forward = _ane.FeedForward(
        _conv(state, f"{prefix}ffn.lin1"), _conv(state, f"{prefix}ffn.lin2"), config.activation
    )
    norms = [_norm(state, f"{prefix}{name}") for name in ("sa_layer_norm", "output_layer_norm")]
    return nn.ModuleList([attention, norms[0], feed_forward, norms[1]])


def _conv(state: dict[str, Tensor], name: str) -> _ane.Conv1x1:
    return _ane.Conv1x1(state[f"{name}.weight"], state[f"{name}.bias"])


def _norm(state: dict[str, Tensor], name: str) -> _ane.LayerNorm:
    return _ane.LayerNorm(state[f"{name}.weight"], state[f"{name}.bias"], _EPS)


VARIANTS = {"original": original, "split_einsum": split_einsum}

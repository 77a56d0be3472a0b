"""GPT-2 with its language-model head: input_ids (1,S) -> logits (1,S,V), the whole window at once. Task: causal_lm.

There is no attention mask: the causal one is a constant, and texts shorter than the window are padded on the right,
where no real token sees them.
"""

import torch
from torch import Tensor, nn

from . import _ane, _hf
from ._ports import Port, Ports

# The causal mask and its fill value, which old checkpoints carry as tensors.
IGNORED = (r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)$",)


def skeleton(model: dict) -> nn.Module:
    """Hugging Face's GPT2LMHeadModel."""
    from transformers import GPT2LMHeadModel

    if model["task"] != "causal_lm":
        raise ValueError(f"family gpt2 knows the task 'causal_lm', not {model['task']!r}")
    return GPT2LMHeadModel(_config(model))


def ports(model: dict, seq_len: int) -> Ports:
    logits = Port("logits", (1, seq_len, model["arch"]["vocab_size"]), "float32")
    return Ports((Port("input_ids", (1, seq_len), "int32"),), (logits,))


class Original(nn.Module):
    """The Hugging Face module, with the causal mask and positions given so that it need not build them."""

    def __init__(self, hf: nn.Module, seq_len: int):
        super().__init__()
        self.hf = hf
        self.register_buffer("position_ids", torch.arange(seq_len)[None], persistent=False)
        self.register_buffer("mask", _hf.causal_mask(seq_len), persistent=False)

    def forward(self, input_ids: Tensor) -> tuple[Tensor, ...]:
        output = self.hf(
            input_ids=input_ids,
            attention_mask=self.mask,
            position_ids=self.position_ids,
            use_cache=False,
            return_dict=False,
        )
        return (output[0],)


class SplitEinsum(nn.Module):
    """Pre-norm decoder on (B, C, 1, S); `layers` hold norm, attention, norm, feed-forward."""

    def __init__(
        self, embedding: _ane.Embedding, layers: list[nn.ModuleList], norm: _ane.LayerNorm, head, mask: Tensor
    ):
        super().__init__()
        self.embedding, self.norm, self.head = embedding, norm, head
        self.layers = nn.ModuleList(layers)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, input_ids: Tensor) -> tuple[Tensor, ...]:
        x = self.embedding(input_ids)
        for attention_norm, attention, feed_forward_norm, feed_forward in self.layers:
            x = attention(attention_norm(x), self.mask) + x
            x = feed_forward(feed_forward_norm(x)) + x
        return (_ane.to_sequence(self.head(self.norm(x))),)


def original(model: dict, state: dict[str, Tensor], seq_len: int) -> nn.Module:
    """Hugging Face's module as it is."""
    return Original(_hf.filled(lambda: skeleton(model), state), seq_len).eval()


def split_einsum(model: dict, state: dict[str, Tensor], seq_len: int) -> nn.Module:
    """The same function in Neural Engine form, on the same tensors."""
    config = _config(model)
    table = state["transformer.wte.weight"]
    embedding = _ane.Embedding(table, state["transformer.wpe.weight"][:seq_len])
    layers = [_layer(config, state, i) for i in range(config.n_layer)]
    norm = _norm(config, state, "transformer.ln_f")
    head = _ane.Conv1x1(state.get("lm_head.weight", table), None)
    if head.weight.data_ptr() == embedding.table.data_ptr():
        head.weight = embedding.table  # one parameter, so that the converter writes one tensor
    # Key by query: the transpose of what Hugging Face's layout adds.
    mask = _hf.causal_mask(seq_len)[0, 0].t()[None, :, None, :].contiguous()
    return SplitEinsum(embedding, layers, norm, head, mask).eval()


def _config(model: dict):
    from transformers import GPT2Config

    return GPT2Config(**model["arch"], attn_implementation=_hf.ATTENTION)


def _layer(config, state: dict[str, Tensor], index: int) -> nn.ModuleList:
    prefix = f"transformer.h.{index}."

    def conv(name: str, part: slice = slice(None)) -> _ane.Conv1x1:
        # Hugging Face's Conv1D keeps (in, out); the transpose is a view.
        return _ane.Conv1x1(state[f"{prefix}{name}.weight"].t()[part], state[f"{prefix}{name}.bias"][part])

    width = config.n_embd
    query, key, value = (conv("attn.c_attn", slice(i * width, (i + 1) * width)) for i in range(3))
    attention = _ane.Attention(query, key, value, conv("attn.c_proj"), config.n_head, _scale(config, index))
    feed_forward = _ane.FeedForward(conv("mlp.c_fc"), conv("mlp.c_proj"), config.activation_function)
    norms = [_norm(config, state, f"{prefix}{name}") for name in ("ln_1", "ln_2")]
    return nn.ModuleList([norms[0], attention, norms[1], feed_forward])


def _scale(config, index: int) -> float:
    scale = (config.n_embd // config.n_head) ** -0.5 if config.scale_attn_weights else 1.0
    return scale / (index + 1) if config.scale_attn_by_inverse_layer_idx else scale


def _norm(config, state: dict[str, Tensor], name: str) -> _ane.LayerNorm:
    return _ane.LayerNorm(state[f"{name}.weight"], state[f"{name}.bias"], config.layer_norm_epsilon)


VARIANTS = {"original": original, "split_einsum": split_einsum}

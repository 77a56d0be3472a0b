"""Layers for the Neural Engine, after the principles in Apple's "Deploying Transformers on the Apple Neural Engine"
(machinelearning.apple.com/research/neural-engine-transformers, 2022); the code is ours.

- Tensors are 4-D and channels-first, (B, C, 1, S): the engine's buffers are packed along the last axis, which a
  sequence fills and a head dimension wastes.
- A linear layer is a 1x1 convolution.
- Attention runs head by head on slices (better cache residency, more parallel work), with keys transposed once for all
  heads, so that 'bchq,bkhc->bkhq' and 'bkhq,bchk->bchq' are the engine's own batched products: no reshape needed.
- Weights are views of the Hugging Face state: building a module copies none of them.

fp16 thoughts. Layer norm squares its input, which overflows fp16 from 256 on if run as separate ops; it is
written so that coremltools fuses it to one `layer_norm(axes=[1])` op, which accumulates in higher precision. BERT's
epsilon 1e-12 is 0 in fp16; it is kept as the model has it (fp32 must agree with Hugging Face), and coremltools' fp16
pass raises a constant that would vanish to the smallest fp16 number, 6e-8: for both variants alike. Queries are scaled
before the product, not the scores after it, which keeps the product a factor sqrt(d) further from fp16's limit; the
converter folds that factor into the query convolution.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Below this a layer-norm weight is taken as this, as `bias / weight` must be finite. 1e-6 of a normalised value (up to
# sqrt(C)) is far under the 1e-4 of the output's peak to which the variants agree.
_TINY_GAMMA = 1e-6

_ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


def activation(name: str):
    """The function behind Hugging Face's activation name. Raises ValueError naming the known ones."""
    if name not in _ACTIVATIONS:
        raise ValueError(f"activation {name!r} has no split_einsum form; known: {', '.join(sorted(_ACTIVATIONS))}")
    return _ACTIVATIONS[name]


class Conv1x1(nn.Module):
    """y = W x + b on channels: (B, C_in, 1, S) -> (B, C_out, 1, S). `weight` is (C_out, C_in), any strides."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.weight = nn.Parameter(weight[:, :, None, None], requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, self.bias)


class LayerNorm(nn.Module):
    """Layer norm over axis 1 of (B, C, 1, S), with Hugging Face's weight and bias (C,).

    Written as (x_hat + bias / weight) * weight, in the very order of ops that coremltools'
    `fuse_layernorm_or_instancenorm` (pattern 5) recognises and folds back into layer_norm(gamma, beta).
    """

    def __init__(self, weight: Tensor, bias: Tensor, eps: float):
        super().__init__()
        safe = torch.where(weight.abs() < _TINY_GAMMA, torch.full_like(weight, _TINY_GAMMA), weight)
        self.weight = nn.Parameter(safe[None, :, None, None], requires_grad=False)
        self.shift = nn.Parameter((bias / safe)[None, :, None, None], requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(dim=1, keepdim=True)
        variance = (centred * centred).mean(dim=1, keepdim=True)
        return (centred * torch.rsqrt(variance + self.eps) + self.shift) * self.weight


class Attention(nn.Module):
    """Self-attention on (B, C, 1, S), one head after the other.

    `mask` is added to scores laid out key by query: (1, S_key, 1, 1) for padding, (1, S_key, 1, S_query) for causal.
    """

    def __init__(self, query: Conv1x1, key: Conv1x1, value: Conv1x1, out: Conv1x1, heads: int, scale: float):
        super().__init__()
        self.query, self.key, self.value, self.out = query, key, value, out
        self.heads, self.scale = heads, scale

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query = self.query(x) * self.scale
        key = self.key(x).transpose(1, 3)  # (B, S, 1, C), the one transpose that the products need
        value = self.value(x)
        width = query.shape[1] // self.heads
        heads = zip(query.split(width, dim=1), key.split(width, dim=3), value.split(width, dim=1))
        mixed = [self._head(q, k, v, mask) for q, k, v in heads]
        return self.out(torch.cat(mixed, dim=1))

    @staticmethod
    def _head(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = torch.einsum("bchq,bkhc->bkhq", q, k) + mask  # (B, S_key, 1, S_query)
        return torch.einsum("bkhq,bchk->bchq", scores.softmax(dim=1), v)  # (B, d, 1, S_query)


class FeedForward(nn.Module):
    def __init__(self, up: Conv1x1, down: Conv1x1, act: str):
        super().__init__()
        self.up, self.down, self.act = up, down, activation(act)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.up(x)))


class Embedding(nn.Module):
    """Token ids (1, S) -> (1, C, 1, S), with everything that depends on the position alone added as one constant.

    Looks rows up in the table as (V, C, 1, 1), the shape of a 1x1 convolution's weight: where a language model's head
    is tied to the table, both are one tensor in the package. `table` (V, C), `positions` (S, C).
    """

    def __init__(self, table: Tensor, positions: Tensor):
        super().__init__()
        self.table = nn.Parameter(table[:, :, None, None], requires_grad=False)
        self.positions = nn.Parameter(positions.t()[None, :, None, :].contiguous(), requires_grad=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        rows = torch.index_select(self.table, 0, input_ids.squeeze(0))  # (S, C, 1, 1)
        return rows.permute(2, 1, 3, 0) + self.positions


def to_sequence(x: Tensor) -> Tensor:
    """(B, C, 1, S) -> (B, S, C), the outer world's layout; the one transpose at the output's edge."""
    return x.squeeze(2).transpose(1, 2)

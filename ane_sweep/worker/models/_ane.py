"""Layers for the Neural Engine, after the principles in Apple's "Deploying Transformers on the Apple Neural Engine"
(machinelearning.apple.com/research/neural-engine-transformers, 2022); the code is ours.

- Tensors are 4-D and channels-first, (B, C, 1, S): the engine's buffers are packed along the last axis, which a
  sequence fills and a head dimension wastes.
- A linear layer is a 1x1 convolution.
- Attention runs head by head on slices (better cache residency, more parallel work), with keys transposed once for all
  heads, so that 'bchq,bkhc->bkhq' and 'bkhq,bchk->bchq' are the engine's own batched products: no reshape needed.
- Weights are views of the Hugging Face state: building a module copies none of them.

Precision in fp16. Layer norm squares its input, which overflows fp16 from 256 on if run as separate ops; it is
written so that coremltools fuses it to one `layer_norm(axes=[1])` op, which accumulates in higher precision. BERT's
epsilon 1e-12 is 0 in fp16; it is kept as the model has it (fp32 must agree with Hugging Face), and coremltools' fp16
pass raises a constant that would vanish to the smallest fp16 number, 6e-8: for both variants alike. Queries are scaled
before the product, not the scores after it, which keeps the product a factor sqrt(d) further from fp16's limit; the
converter folds that factor into the query convolution.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ane_sweep.worker.models._cache import Memory

# Below this a layer-norm weight is taken as this, as `bias / weight` must be finite. 1e-6 of a normalised value (up to
# sqrt(C)) is far under the 1e-4 of the output's peak to which the variants agree.
_TINY_GAMMA = 1e-6

Activation = Callable[[Tensor], Tensor]
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,
    "gelu_fast": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
    "silu": F.silu,
}


class Conv1x1(nn.Module):
    """A linear layer y = W x + b on channels: (B, C_in, 1, S) -> (B, C_out, 1, S). `weight` is (C_out, C_in), any strides."""

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


class RMSNorm(nn.Module):
    """RMS norm: x / sqrt(mean(x^2) + eps) * weight over axis 1 of (B, C, 1, S), with `weight` (C,).

    Written as the layer norm of (x, -x), whose mean is 0 and whose variance is the mean square: the same function,
    which coremltools folds to its `layer_norm` op. As separate ops the square overflows fp16 from 256 on.
    """

    def __init__(self, weight: Tensor, eps: float):
        super().__init__()
        self.weight = nn.Parameter(weight[None, :, None, None], requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([x, -x], dim=1)
        centred = both - both.mean(dim=1, keepdim=True)
        variance = (centred * centred).mean(dim=1, keepdim=True)
        return (centred * torch.rsqrt(variance + self.eps))[:, : x.shape[1]] * self.weight


class HeadNorm(nn.Module):
    """RMSNorm over each head's own channels of (1, heads * d, 1, S); `weight` (d,). The heads become the batch."""

    def __init__(self, weight: Tensor, eps: float):
        super().__init__()
        self.norm = RMSNorm(weight, eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.reshape(-1, self.norm.weight.shape[1], 1, x.shape[3])).reshape(x.shape)


class Rotary(nn.Module):
    """Rotary positions on (B, heads * d, 1, S): x cos + turn(x) sin.

    `turn` (d, d) holds 0, 1 and -1: it names each channel's partner within a head, and the sign. As a grouped 1x1
    convolution it moves all heads at once, exactly; slices and concats would take several ops a head.
    `cos`, `sin` (d, S); channels that are not rotated have cos 1 and sin 0.
    """

    cos: Tensor
    sin: Tensor
    turn: Tensor

    def __init__(self, cos: Tensor, sin: Tensor, turn: Tensor, heads: int):
        super().__init__()
        self.heads = heads
        self.register_buffer("cos", cos.repeat(heads, 1)[None, :, None, :], persistent=False)
        self.register_buffer("sin", sin.repeat(heads, 1)[None, :, None, :], persistent=False)
        self.register_buffer("turn", turn.repeat(heads, 1)[:, :, None, None], persistent=False)

    def forward(self, x: Tensor, memory: Memory | None = None) -> Tensor:
        cos, sin = (table if memory is None else memory.row(table, 3) for table in (self.cos, self.sin))
        return x * cos + F.conv2d(x, self.turn, groups=self.heads) * sin


Mask = Tensor | tuple[Tensor, ...]


class Attention(nn.Module):
    """Attention on (B, C, 1, S), head by head: to its own input, or to `context` (B, C, 1, S_key).

    With fewer key and value heads than query heads (`kv_heads`), neighbouring query heads share one.
    Masks are added to the scores and laid out key by query: (1, S_key, 1, 1) for padding, (1, S_key, 1, S_query) for
    causal; a tuple holds one mask for each head. With `memory`, this call's keys and values are written to its layer
    `layer`, and those of all positions are read from there.
    """

    def __init__(
        self,
        query: Conv1x1,
        key: Conv1x1,
        value: Conv1x1,
        out: Conv1x1,
        heads: int,
        scale: float,
        kv_heads: int | None = None,
        norms: tuple[nn.Module, nn.Module] | None = None,
        rotary: tuple[Rotary, Rotary] | None = None,
    ):
        super().__init__()
        self.query, self.key, self.value, self.out = query, key, value, out
        self.heads, self.kv_heads, self.scale = heads, kv_heads or heads, scale
        # Each a pair, for queries and for keys.
        self.norms, self.rotary = (pair and nn.ModuleList(pair) for pair in (norms, rotary))

    def forward(
        self, x: Tensor, *masks: Mask, context: Tensor | None = None, memory: Memory | None = None, layer: int = 0
    ) -> Tensor:
        source = x if context is None else context
        query, key, value = self.query(x), self.key(source), self.value(source)
        if self.norms:
            query, key = self.norms[0](query), self.norms[1](key)
        if self.scale != 1.0:
            query = query * self.scale
        if self.rotary:
            query, key = self.rotary[0](query, memory), self.rotary[1](key, memory)
        if memory is not None:
            key, value = memory.keep(layer, key, value)
        key = key.transpose(1, 3)  # (B, S, 1, C), the one transpose that the products need
        width, group = query.shape[1] // self.heads, self.heads // self.kv_heads
        keys, values = key.split(width, dim=3), value.split(width, dim=1)
        mixed = [
            self._head(q, keys[i // group], values[i // group], [m[i] if isinstance(m, tuple) else m for m in masks])
            for i, q in enumerate(query.split(width, dim=1))
        ]
        return self.out(torch.cat(mixed, dim=1))

    @staticmethod
    def _head(q: Tensor, k: Tensor, v: Tensor, masks: list[Tensor]) -> Tensor:
        scores = torch.einsum("bchq,bkhc->bkhq", q, k)  # (B, S_key, 1, S_query)
        for mask in masks:
            scores = scores + mask
        return torch.einsum("bkhq,bchk->bchq", scores.softmax(dim=1), v)  # (B, d, 1, S_query)


class FeedForward(nn.Module):
    """Feed-forward: down(act(up(x))), or with a gate down(act(gate(x)) * up(x)). `act`: Hugging Face's name of an activation."""

    def __init__(self, up: Conv1x1, down: Conv1x1, act: str, gate: Conv1x1 | None = None):
        super().__init__()
        if act not in _ACTIVATIONS:
            raise ValueError(f"activation {act!r} has no split_einsum form; known: {', '.join(sorted(_ACTIVATIONS))}")
        self.up, self.down, self.gate, self.act = up, down, gate, _ACTIVATIONS[act]

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.act(self.up(x)))
        return self.down(self.act(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """One block; `wiring` is the order of norms and residuals.

    pre       x + attention(norm(x)), then x + feed_forward(norm(x))
    post      norm(x + attention(x)), then norm(x + feed_forward(x))
    parallel  x + attention(first(x)) + feed_forward(second(x)); a second norm of None is the first
    """

    def __init__(
        self, first: nn.Module, attention: Attention, second: nn.Module | None, feed_forward: FeedForward, wiring: str
    ):
        super().__init__()
        self.first, self.attention, self.second, self.feed_forward = first, attention, second, feed_forward
        self.wiring = wiring

    def forward(self, x: Tensor, *masks: Mask, memory: Memory | None = None, layer: int = 0) -> Tensor:
        if self.wiring == "parallel":
            normed = self.first(x)
            other = normed if self.second is None else self.second(x)
            return self.feed_forward(other) + self.attention(normed, *masks, memory=memory, layer=layer) + x
        assert self.second is not None, f"a block with wiring {self.wiring!r} needs two norms"
        if self.wiring == "post":
            x = self.first(self.attention(x, *masks, memory=memory, layer=layer) + x)
            return self.second(self.feed_forward(x) + x)
        x = self.attention(self.first(x), *masks, memory=memory, layer=layer) + x
        return self.feed_forward(self.second(x)) + x


class Embedding(nn.Module):
    """Token ids (B, S) -> (B, C, 1, S), with everything that depends on the position alone added as one constant.

    The table is (V, C, 1, 1), the shape of a 1x1 convolution's weight: if a language model's head is tied to the table,
    both are one tensor in the package. `table` (V, C), `positions` (S, C) or None; `project` is a convolution between
    the two. Floats (1, S, C) are embeddings that the caller has looked up and scaled.
    """

    def __init__(
        self, table: Tensor, positions: Tensor | None = None, scale: float = 1.0, project: Conv1x1 | None = None
    ):
        super().__init__()
        self.table = nn.Parameter(table[:, :, None, None], requires_grad=False)
        self.scale, self.project = scale, project
        added = None if positions is None else positions.t()[None, :, None, :].contiguous()
        self.positions = None if added is None else nn.Parameter(added, requires_grad=False)

    def forward(self, tokens: Tensor, memory: Memory | None = None) -> Tensor:
        if tokens.is_floating_point():
            x = tokens.transpose(1, 2)[:, :, None, :]
        else:
            x = self._look_up(tokens)
            x = x if self.scale == 1.0 else x * self.scale
        x = x if self.project is None else self.project(x)
        if self.positions is None:
            return x
        return x + (self.positions if memory is None else memory.row(self.positions, 3))

    def _look_up(self, tokens: Tensor) -> Tensor:
        count, length = tokens.shape
        if count == 1:
            return torch.index_select(self.table, 0, tokens.squeeze(0)).permute(2, 1, 3, 0)  # from (S, C, 1, 1)
        rows = torch.index_select(self.table, 0, tokens.reshape(-1))  # (B S, C, 1, 1)
        return rows.reshape(count, length, -1).transpose(1, 2).unsqueeze(2)


class Head(nn.Module):
    """The projection to the vocabulary, (B, C, 1, S) -> (B, V, 1, S), in one convolution or several."""

    parts: nn.ModuleList

    def __init__(self, weight: Tensor, bias: Tensor | None = None, project: Conv1x1 | None = None, scale: float = 1.0):
        super().__init__()
        self.project, self.scale = project, scale
        self.parts = nn.ModuleList([Conv1x1(weight, bias)])

    def split(self, count: int) -> None:
        """Split the projection into `count` convolutions of nearly equal size."""
        (conv,) = self.parts
        assert isinstance(conv, Conv1x1)
        weight, bias = conv.weight[:, :, 0, 0], conv.bias
        rows = torch.arange(weight.shape[0]).tensor_split(count)
        spans = [slice(int(part[0]), int(part[-1]) + 1) for part in rows]
        self.parts = nn.ModuleList([Conv1x1(weight[s], None if bias is None else bias[s]) for s in spans])

    def tie(self, embedding: Embedding) -> None:
        """Share the embedding's table as one parameter, so that the converter writes one tensor."""
        self.parts[0].weight = embedding.table

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.project is None else self.project(x)
        x = x if self.scale == 1.0 else x * self.scale
        made = [part(x) for part in self.parts]
        return made[0] if len(made) == 1 else torch.cat(made, dim=1)


class Reader:
    """A builder of layers from a state's tensors under one prefix: `Reader(state, "transformer.h.0.").conv("mlp.c_fc")`.

    `transposed` is for Hugging Face's Conv1D, which stores (in, out); `rows` selects outputs.
    A missing bias in the state gives a layer without bias.
    """

    def __init__(self, state: dict[str, Tensor], prefix: str = ""):
        self.state, self.prefix = state, prefix

    def under(self, prefix: str) -> "Reader":
        return Reader(self.state, self.prefix + prefix)

    def get(self, name: str) -> Tensor | None:
        return self.state.get(self.prefix + name)

    def __getitem__(self, name: str) -> Tensor:
        return self.state[self.prefix + name]

    def conv(self, name: str, rows: slice | Tensor = slice(None), *, transposed: bool = False) -> Conv1x1:
        weight, bias = self[f"{name}.weight"], self.get(f"{name}.bias")
        return Conv1x1((weight.t() if transposed else weight)[rows], None if bias is None else bias[rows])

    def layer_norm(self, name: str, eps: float) -> LayerNorm:
        return LayerNorm(self[f"{name}.weight"], self[f"{name}.bias"], eps)

    def rms_norm(self, name: str, eps: float, offset: float = 0.0) -> RMSNorm:
        weight = self[f"{name}.weight"]
        return RMSNorm(weight + offset if offset else weight, eps)


def to_sequence(x: Tensor) -> Tensor:
    """Convert (B, C, 1, S) to Hugging Face's layout (B, S, C): the only transpose at the output."""
    return x.squeeze(2).transpose(1, 2)


def pad_tokens(tokens: Tensor, more: int) -> Tensor:
    """Append `more` positions to the tokens: id 0 for ids (1,S), zeros for embeddings (1,S,C).

    They are concatenated, as coremltools turns integers that it pads into floats.
    """
    return torch.cat([tokens, torch.zeros((tokens.shape[0], more, *tokens.shape[2:]), dtype=tokens.dtype)], dim=1)

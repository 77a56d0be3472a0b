"""Building of Hugging Face modules around a state that is already in memory, without a second copy of the weights."""

from collections.abc import Callable
from itertools import chain
from typing import TypeVar

import torch
from torch import nn

from ane_sweep.worker.models._types import Dynamic

# The largest negative value that fp16 holds exactly in a mask that is *added* to attention scores: the sum
# with any score below 5e4 does not overflow, and exp(-1e4) is 0 in fp16 and fp32.
MASKED = -1e4

M = TypeVar("M", bound=nn.Module)


def build_on_meta(build: Callable[[], M]) -> M:
    """Build a module with every tensor on the meta device: names and shapes, without memory or initialisation."""
    with torch.device("meta"):
        return build()


def build_filled(build: Callable[[], M], state: dict[str, torch.Tensor]) -> M:
    """Build a module on the meta device, give it `state`'s own tensors, and tie its weights. Eval mode, no grad."""
    module = build_on_meta(build)
    _, unexpected = module.load_state_dict(state, strict=False, assign=True)
    tie_weights(module)
    _materialise_buffers(module)
    tensors = chain(module.named_parameters(), module.named_buffers())
    if (missing := [name for name, tensor in tensors if tensor.is_meta]) or unexpected:
        raise ValueError(f"state does not fit the module: missing {missing[:3]}, unexpected {list(unexpected)[:3]}")
    return module.eval().requires_grad_(False)


def tie_weights(module: nn.Module) -> None:
    """Let parameters that are tied in this architecture share one tensor; a module that is not of transformers has none."""
    getattr(module, "tie_weights", lambda: None)()


def make_additive_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Convert a mask (1,S) of 1 = real, 0 = padding to (1,1,1,S) of 0 and MASKED, which is added to scores
    (1,heads,S,S).

    transformers uses a 4-D mask untouched. From a 2-D one it would build its own, with ops that coremltools 9.0 cannot
    convert (`new_ones`; `diff` in causal models).
    """
    return ((1.0 - attention_mask) * MASKED)[:, None, None, :]


def make_causal_mask(seq_len: int, heads: int = 1) -> torch.Tensor:
    """Return the mask (1,heads,S,S), query by key: MASKED above the diagonal, 0 elsewhere."""
    return torch.full((seq_len, seq_len), MASKED).triu(1).repeat(1, heads, 1, 1)


class RotaryTable(nn.Module):
    """The cos and sin of a rotary module of transformers as tables (1, S, d), read by position."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor):
        super().__init__()
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.cos.index_select(1, position_ids[0]), self.sin.index_select(1, position_ids[0])


def tabulate_rotary(module: nn.Module, seq_len: int) -> None:
    """Replace modules that compute angles from positions by tables.

    Positions that are inputs of an fp16 program would lose the angles' fractions.
    """
    for name, child in list(module.named_modules()):
        if type(child).__name__.endswith("RotaryEmbedding"):
            module.set_submodule(name, RotaryTable(*child(torch.zeros(1), torch.arange(seq_len)[None])))


def _materialise_buffers(module: nn.Module) -> None:
    """Fill the non-persistent buffers, which no checkpoint holds, with the values that their owners give them."""
    for path in sorted({name.rpartition(".")[0] for name, buffer in module.named_buffers() if buffer.is_meta}):
        owner, blank = module.get_submodule(path), False
        for leaf, buffer in list(owner.named_buffers(recurse=False)):
            if buffer.is_meta:
                value = _known_buffer(owner, leaf, buffer.shape)
                made = torch.empty(buffer.shape, dtype=buffer.dtype) if value is None else value.to(buffer.dtype)
                owner.register_buffer(leaf, made, persistent=False)
                blank = blank or value is None
                if value is None and owner._parameters:
                    raise ValueError(f"do not know how to fill the buffer {path}.{leaf} {tuple(buffer.shape)}")
        # Rotary frequencies and sinusoidal tables are transformers' own. An owner with weights would have them drawn anew.
        if blank and (fill := getattr(module, "_init_weights", None)):
            fill(owner)


def _known_buffer(owner: Dynamic, leaf: str, shape: torch.Size) -> torch.Tensor | None:
    if leaf == "position_ids":
        return torch.arange(shape[-1]).expand(shape)
    if leaf == "token_type_ids":
        return torch.zeros(shape, dtype=torch.long)
    if leaf == "embed_scale":  # Gemma
        return torch.tensor(owner.scalar_embed_scale)
    if leaf == "bias":  # GPT-1, GPT-Neo and GPT-BigCode: the keys that a query may see
        seen = torch.ones(shape, dtype=torch.bool).tril()
        local = getattr(owner, "attention_type", None) == "local"
        return seen & ~seen.tril(-owner.config.window_size) if local else seen
    return None

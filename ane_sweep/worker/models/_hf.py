"""Building Hugging Face modules around a state that is already in memory, without a second copy of the weights."""

from collections.abc import Callable

import torch
from torch import nn

# Largest negative value that is still finite, and still exact, in fp16 for a mask that is *added* to attention scores:
# the sum with any score below 5e4 does not overflow, and exp(-1e4) is 0 in fp16 and fp32.
MASKED = -1e4

# Attention as the plain matmul-softmax-matmul that transformers calls "eager". "sdpa" gives a fused op whose lowering
# changes with the target OS (one op from iOS18 on, a decomposition below), which would make the target axis
# change the graph; eager converts to the same ops everywhere.
ATTENTION = "eager"


def on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    """Run a constructor with every tensor on the meta device: names and shapes, no memory, no initialisation."""
    with torch.device("meta"):
        return build()


def filled(build: Callable[[], nn.Module], state: dict[str, torch.Tensor]) -> nn.Module:
    """Construct on the meta device and assign `state`'s own tensors, tied ones tied again. Eval mode, no grad."""
    module = on_meta(build)
    _, unexpected = module.load_state_dict(state, strict=False, assign=True)
    module.tie_weights()
    _materialise_buffers(module)
    left = [name for name, tensor in _tensors(module) if tensor.is_meta]
    if left or unexpected:
        raise ValueError(f"state does not fit the module: missing {left[:3]}, unexpected {list(unexpected)[:3]}")
    return module.eval().requires_grad_(False)


def additive_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """(1,S) of 1 = real, 0 = padding -> (1,1,1,S) of 0 and MASKED, to be added to scores (1,heads,S,S).

    transformers hands a 4-D mask through untouched. From a 2-D one it would build its own, with ops that
    coremltools 9.0 cannot convert (`new_ones`; `diff` in causal models).
    """
    return ((1.0 - attention_mask) * MASKED)[:, None, None, :]


def causal_mask(seq_len: int) -> torch.Tensor:
    """(1,1,S,S), query by key: MASKED above the diagonal, 0 elsewhere."""
    return torch.full((seq_len, seq_len), MASKED).triu(1)[None, None]


class RotaryTable(nn.Module):
    """cos and sin of transformers' rotary modules as rows of tables (1, S, d), by position."""

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor):
        super().__init__()
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.cos.index_select(1, position_ids[0]), self.sin.index_select(1, position_ids[0])


def tabulate_rotary(module: nn.Module, seq_len: int) -> None:
    """Put tables in the place of modules that compute angles from positions: as inputs of an fp16 program those would
    lose the angles' fractions."""
    for name, child in list(module.named_modules()):
        if type(child).__name__.endswith("RotaryEmbedding"):
            table = RotaryTable(*child(torch.zeros(1), torch.arange(seq_len)[None]))
            module.set_submodule(name, table)


def _tensors(module: nn.Module):
    yield from module.named_parameters()
    yield from module.named_buffers()


def _materialise_buffers(module: nn.Module) -> None:
    """Fill the non-persistent buffers, which are in no checkpoint, with what their owners would have put there."""
    owners = {name.rpartition(".")[0] for name, buffer in module.named_buffers() if buffer.is_meta}
    for path in sorted(owners):
        owner, blank = module.get_submodule(path), False
        for leaf, buffer in list(owner.named_buffers(recurse=False)):
            if buffer.is_meta:
                value = _known_buffer(owner, leaf, buffer.shape)
                made = torch.empty(buffer.shape, dtype=buffer.dtype) if value is None else value.to(buffer.dtype)
                owner.register_buffer(leaf, made, persistent=False)
                blank = blank or value is None
                if value is None and owner._parameters:
                    raise ValueError(f"do not know how to fill the buffer {path}.{leaf} {tuple(buffer.shape)}")
        # transformers' own: rotary frequencies, sinusoidal tables. It would draw anew what weights are beneath the owner.
        if blank and hasattr(module, "_init_weights"):
            module._init_weights(owner)


def _known_buffer(owner: nn.Module, leaf: str, shape: torch.Size) -> torch.Tensor | None:
    if leaf == "position_ids":
        return torch.arange(shape[-1]).expand(shape)
    if leaf == "token_type_ids":
        return torch.zeros(shape, dtype=torch.long)
    if leaf == "embed_scale":  # Gemma
        return torch.tensor(owner.scalar_embed_scale)
    if leaf == "bias":  # GPT-1, GPT-Neo and GPT-BigCode: what a query may see
        seen = torch.ones(shape, dtype=torch.bool).tril()
        local = getattr(owner, "attention_type", None) == "local"
        return seen & ~seen.tril(-owner.config.window_size) if local else seen
    return None

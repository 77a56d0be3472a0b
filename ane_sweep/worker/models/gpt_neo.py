"""GPT-Neo: GPT-2 with linear layers; every other layer looks back on 256 tokens alone; scores are not scaled."""

from dataclasses import replace

from torch import Tensor

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _layouts, gpt2
from ane_sweep.worker.models._cache import Memory
from ane_sweep.worker.models._types import Dynamic


def _finite_masks(hf: Dynamic, seq_len: int) -> None:
    """Let the masks of Hugging Face's layers hide only the tokens outside the window.

    Those layers select fp32's lowest number for hidden tokens, which is minus infinity in fp16, and our causal mask
    would be added to it. Our mask does the causal part; layers without a window then hide nothing.
    """
    for block in hf.transformer.h:
        owner = block.attn.attention
        seen = owner.bias.clone()
        if owner.attention_type == "local":
            seen |= ~seen.new_ones(seen.shape).tril()  # the future is left to the causal mask
        else:
            seen[:] = True
        owner.register_buffer("bias", seen, persistent=False)


class _Rows:
    """A table that returns its own rows for every slice, as Hugging Face's attention would slice them from a longer one."""

    def __init__(self, rows: Tensor):
        self.rows = rows

    def __getitem__(self, index: object) -> Tensor:
        return self.rows


def _set_windows(hf: Dynamic, memory: Memory) -> None:
    """Give each layer the window's rows for the current token.

    Hugging Face takes the last rows, as if the keys ended with that token; in a cache of fixed length they do not.
    """
    for block in hf.transformer.h:
        owner = block.attn.attention
        if "bias" in owner._buffers:
            # Numbers: Core ML looks no rows up in a table of booleans.
            owner.window = owner._buffers.pop("bias")[:, :, : memory.length, : memory.length].float()
        owner.bias = _Rows(memory.row(owner.window, 2) > 0)


FAMILY = replace(
    gpt2.FAMILY,
    config="GPTNeoConfig",
    builds={"causal_lm": "GPTNeoForCausalLM"},
    ignored=(r"(transformer\.)?h\.\d+\.attn\.attention\.(bias|masked_bias)$",),
    attention=_layouts.separate_projections(*(f"attn.attention.{name}_proj" for name in ("q", "k", "v", "out"))),
    transposed=False,
    window=lambda config, layer: config.window_size if config.attention_layers[layer] == "local" else None,
    scale=lambda config, layer: 1.0,
    prepare=_finite_masks,
    follow=_set_windows,
)
SERVES = Serves(architectures={"GPTNeoForCausalLM": "causal_lm"}, model_types=("gpt_neo",), layers="num_layers")

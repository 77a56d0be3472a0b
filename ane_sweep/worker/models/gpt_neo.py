"""GPT-Neo: every other layer looks back on 256 tokens alone; scores are not scaled."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _decoder, _layouts

IGNORED = (r"(transformer\.)?h\.\d+\.attn\.attention\.(bias|masked_bias)$",)


def _finite_masks(hf, seq_len: int) -> None:
    """Widen what Hugging Face's layers mask by selection with fp32's lowest number to what only they know, the window.

    The causal part comes with our mask; a lowest fp32 number in the graph is minus infinity in fp16, where it
    would be added to. Layers that look back on everything then select nothing and are left without the op's effect.
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
    """What Hugging Face's attention slices its rows out of: here those that it needs are all there are."""

    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, index):
        return self.rows


def _windows(hf, memory) -> None:
    """Hugging Face takes the last rows of each layer's window, as if its keys ended with the token at hand; in a cache
    of fixed length they do not."""
    length = memory.states[0][0].shape[2]
    for block in hf.transformer.h:
        owner = block.attn.attention
        if "bias" in owner._buffers:
            # Numbers: Core ML looks no rows up in a table of booleans.
            owner.window = owner._buffers.pop("bias")[:, :, :length, :length].float()
        owner.bias = _Rows(memory.row(owner.window, 2) > 0)


FAMILY = _decoder.Family(
    hf="GPTNeoForCausalLM",
    config="GPTNeoConfig",
    table="transformer.wte",
    positions="transformer.wpe",
    layer="transformer.h.{}.",
    norms=("ln_1", "ln_2"),
    attention=_layouts.separate(*(f"attn.attention.{name}_proj" for name in ("q", "k", "v", "out"))),
    feed_forward=("mlp.c_fc", "mlp.c_proj"),
    final="transformer.ln_f",
    window=lambda config, layer: config.window_size if config.attention_layers[layer] == "local" else None,
    scale=lambda config, layer: 1.0,
    prepare=_finite_masks,
    follow=_windows,
)
SERVES = Serves(
    architectures={"GPTNeoForCausalLM": "causal_lm"},
    model_types=("gpt_neo",),
    layers="num_layers",
    longest="max_position_embeddings",
)
skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}

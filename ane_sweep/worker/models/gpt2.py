"""GPT-2 with its language-model head. Its Conv1D layers store (in, out)."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _decoder, _layouts
from ane_sweep.worker.models._types import Dynamic


def _scale(config: Dynamic, layer: int) -> float:
    scale = (config.n_embd // config.n_head) ** -0.5 if config.scale_attn_weights else 1.0
    return scale / (layer + 1) if config.scale_attn_by_inverse_layer_idx else scale


FAMILY = _decoder.DecoderFamily(
    config="GPT2Config",
    builds={"causal_lm": "GPT2LMHeadModel"},
    # The causal mask and its fill value, which old checkpoints carry as tensors.
    ignored=(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)$",),
    table="transformer.wte",
    positions="transformer.wpe",
    layer="transformer.h.{}.",
    norms=("ln_1", "ln_2"),
    attention=_layouts.stacked_projection("attn.c_attn", "attn.c_proj", transposed=True),
    feed_forward=("mlp.c_fc", "mlp.c_proj"),
    transposed=True,
    final="transformer.ln_f",
    scale=_scale,
)
SERVES = Serves(
    architectures={"GPT2LMHeadModel": "causal_lm", "GPT2Model": "causal_lm"},
    model_types=("gpt2",),
    layers="n_layer",
    longest="n_positions",
)

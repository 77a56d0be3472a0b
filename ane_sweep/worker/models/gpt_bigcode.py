"""GPT-BigCode (santacoder): GPT-2 with linear layers and, mostly, one key and value head for all query heads."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _ane, _decoder, _layouts
from ane_sweep.worker.models._types import Dynamic

IGNORED = (r"(transformer\.)?(h\.\d+\.attn\.)?(bias|masked_bias)$",)


def _attention(config: Dynamic, read: _ane.Reader) -> _layouts.Convs:
    layout = _layouts.stacked_projection if config.multi_query else _layouts.interleaved_projection
    return layout("attn.c_attn", "attn.c_proj")(config, read)


FAMILY = _decoder.DecoderFamily(
    hf="GPTBigCodeForCausalLM",
    config="GPTBigCodeConfig",
    table="transformer.wte",
    positions="transformer.wpe",
    layer="transformer.h.{}.",
    norms=("ln_1", "ln_2"),
    attention=_attention,
    feed_forward=("mlp.c_fc", "mlp.c_proj"),
    final="transformer.ln_f",
    scale=lambda config, layer: _layouts.head_width(config) ** -0.5 if config.scale_attn_weights else 1.0,
)
SERVES = Serves(
    architectures={"GPTBigCodeForCausalLM": "causal_lm"},
    model_types=("gpt_bigcode",),
    layers="n_layer",
    longest="n_positions",
)
skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}

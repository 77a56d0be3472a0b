"""GPT-BigCode (santacoder): GPT-2 with linear layers and, mostly, one key and value head for all query heads."""

from dataclasses import replace

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _ane, _layouts, gpt2
from ane_sweep.worker.models._types import Dynamic


def _attention(config: Dynamic, read: _ane.Reader) -> _layouts.Convs:
    layout = _layouts.stacked_projection if config.multi_query else _layouts.interleaved_projection
    return layout("attn.c_attn", "attn.c_proj")(config, read)


FAMILY = replace(
    gpt2.FAMILY,
    config="GPTBigCodeConfig",
    builds={"causal_lm": "GPTBigCodeForCausalLM"},
    ignored=(r"(transformer\.)?(h\.\d+\.attn\.)?(bias|masked_bias)$",),
    attention=_attention,
    transposed=False,
    scale=lambda config, layer: _layouts.head_width(config) ** -0.5 if config.scale_attn_weights else 1.0,
)
SERVES = Serves(
    architectures={"GPTBigCodeForCausalLM": "causal_lm"},
    model_types=("gpt_bigcode",),
    layers="n_layer",
    longest="n_positions",
)

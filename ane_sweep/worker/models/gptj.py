"""GPT-J: one norm for attention and feed-forward in parallel, neighbouring channels rotated, a head with a bias."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _decoder, _layouts

FAMILY = _decoder.DecoderFamily(
    config="GPTJConfig",
    builds={"causal_lm": "GPTJForCausalLM"},
    ignored=(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)$",),
    table="transformer.wte",
    layer="transformer.h.{}.",
    norms=("ln_1", None),
    attention=_layouts.separate_projections(*(f"attn.{name}_proj" for name in ("q", "k", "v", "out"))),
    feed_forward=("mlp.fc_in", "mlp.fc_out"),
    final="transformer.ln_f",
    wiring=lambda config: "parallel",
    rotary=_layouts.rotary_pairs,
)
SERVES = Serves(
    architectures={"GPTJForCausalLM": "causal_lm"},
    model_types=("gptj",),
    layers="n_layer",
    longest="n_positions",
    tied=False,
)

"""OPT: learned positions from row 2 on; the 350m size has its norms after the residuals and a narrower embedding."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _decoder, _layouts

FAMILY = _decoder.DecoderFamily(
    config="OPTConfig",
    builds={"causal_lm": "OPTForCausalLM"},
    table="model.decoder.embed_tokens",
    positions="model.decoder.embed_positions",
    position_offset=2,
    project=("model.decoder.project_in", "model.decoder.project_out"),
    layer="model.decoder.layers.{}.",
    norms=("self_attn_layer_norm", "final_layer_norm"),
    attention=_layouts.separate_projections(*(f"self_attn.{name}_proj" for name in ("q", "k", "v", "out"))),
    feed_forward=("fc1", "fc2"),
    final=lambda config: "model.decoder.final_layer_norm" if config.do_layer_norm_before else None,
    eps=lambda config: 1e-5,  # nn.LayerNorm's own; no key of the config
    wiring=lambda config: "pre" if config.do_layer_norm_before else "post",
)
SERVES = Serves(architectures={"OPTForCausalLM": "causal_lm"}, model_types=("opt",))

"""The parameters of an architecture follow from what its family declares."""

import pytest

from ane_sweep.bridge import families, onnx_ops
from ane_sweep.bridge.families import Serves
from ane_sweep.planner import sizing
from ane_sweep.worker import models

# config.json of stabilityai/stablelm-3b-4e1t, which has 2,795,443,200 parameters: gated, yet with layer norms.
STABLELM = {
    "hidden_act": "silu", "hidden_size": 2560, "intermediate_size": 6912, "layer_norm_eps": 1e-05,
    "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "partial_rotary_factor": 0.25, "qk_layernorm": False, "rope_theta": 10000, "tie_word_embeddings": False,
    "use_parallel_residual": False, "vocab_size": 50304,
}  # fmt: skip
SERVES = Serves(
    architectures={"StableLmForCausalLM": "causal_lm"},
    model_types=("stablelm",),
    layers="num_hidden_layers",
    longest="max_position_embeddings",
    tied=False,
    gated=True,
    unbuilt={"qk_layernorm": True},
)


def test_stablelm_is_gated_though_its_norms_are_layer_norms():
    final_norm = 2 * 2560
    assert sizing.estimate(STABLELM, SERVES, "causal_lm") + final_norm == 2_795_443_200


def test_a_value_that_a_family_does_not_build_is_named():
    assert SERVES.find_unbuilt(STABLELM) == []
    (problem,) = SERVES.find_unbuilt({**STABLELM, "qk_layernorm": True})
    assert problem == "its config.json has qk_layernorm=true, and no variant is built for that"


@pytest.mark.parametrize("name", families.names())
def test_what_a_family_declares_is_what_it_builds(name):
    if name == "onnx" and onnx_ops.find_missing():
        pytest.skip("pip install 'ane-sweep[onnx]' brings what it needs")
    serves, family = families.serves(name), getattr(models.get(name), "FAMILY", None)
    if serves is not None and hasattr(family, "rms"):  # a decoder
        assert (serves.norms == "rms", serves.gated) == (family.rms, len(family.feed_forward) == 3)

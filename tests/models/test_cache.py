"""cache=stateful: decoding token by token is what one forward pass over the whole window computes, in fp32."""

from functools import cache

import numpy as np
import pytest
import torch
from tiny import refused

from ane_sweep.bridge import building
from ane_sweep.bridge.building import DECODE, PREFILL, Options
from ane_sweep.worker import models
from ane_sweep.worker.models import weights
from ane_sweep.worker.stages import reference
from tests.bench import families

TOLERANCE = 1e-4  # of the output's peak, as in test_families
SEQ = 19
DECODERS = {option["name"]: option for option in families.tiny_options() if option["task"] == "causal_lm"}
BOTH = pytest.mark.parametrize("variant", ["original", "split_einsum"])


@cache
def plain(name: str) -> tuple[dict, dict, torch.Tensor, torch.Tensor]:
    """(model, state, ids, logits of one forward pass of `original`)."""
    model = {key: DECODERS[name][key] for key in ("family", "task", "arch")}
    state = weights.make_random_state(model, 4)
    ids = torch.from_numpy(np.random.default_rng(4).integers(2, model["arch"]["vocab_size"], (1, SEQ), dtype=np.int32))
    with torch.no_grad():
        (logits,) = models.get(model["family"]).VARIANTS["original"](model, state, SEQ)(ids)
    return model, state, ids, logits


def decoded(name: str, variant: str, options: Options, prompt: int) -> torch.Tensor:
    """Logits after a prefill of `prompt` tokens (none: not called) and decoding the others one by one."""
    model, state, ids, _ = plain(name)
    family = models.get(model["family"])
    module = family.VARIANTS[variant](model, state, SEQ, options)
    module.reset()
    hf = family.VARIANTS["original"](model, state, SEQ) if options.embeddings == "out" else None
    valid = np.ones((1, SEQ), bool)

    def feeds(tokens: torch.Tensor) -> list[torch.Tensor]:
        ports = family.ports(model, SEQ, options, function=PREFILL).inputs
        return [torch.from_numpy(reference.make_feed(p.name, tokens.numpy(), valid, model, hf)[0]) for p in ports]

    given, made = feeds(ids), []
    with torch.no_grad():
        if prompt:
            begun = ids.clone()
            begun[:, prompt:] = 1  # left behind in the states, overwritten before anyone sees it
            made.append(module.functions[PREFILL](*feeds(begun))[0][:, :prompt])
        for place in range(prompt, SEQ):
            tokens, *masks = given
            masks = [mask[:, :, place : place + 1] if mask.dim() == 4 else mask for mask in masks]
            position = torch.tensor([place], dtype=torch.int32)
            step = [tokens[:, place : place + 1], position, *masks]
            ports = family.ports(model, SEQ, options, function=DECODE)
            assert [tuple(value.shape) for value in step] == [port.shape for port in ports.inputs]
            made.append(module.functions[DECODE](*step)[0])
            assert tuple(made[-1].shape) == ports.outputs[0].shape
    return torch.cat(made, dim=1)


def agree(name: str, variant: str, options: Options, prompt: int) -> None:
    expected = plain(name)[3]
    got = decoded(name, variant, options, prompt)
    if options.head == "last":
        got, expected = got[:, -(SEQ - prompt) :], expected[:, prompt:]
    assert got.shape == expected.shape
    assert (got - expected).abs().max() < TOLERANCE * expected.abs().max(), (name, options)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", DECODERS)
@BOTH
def test_decoding_with_a_cache_equals_decoding_without(name, variant):
    if (name, variant) == ("tiny-openai-gpt", "original"):
        pytest.skip("Hugging Face's module keeps nothing, which the plan says")
    agree(name, variant, Options(cache="stateful"), prompt=7)


@pytest.mark.parametrize("name", ["tiny-gpt2", "tiny-gpt-neo", "tiny-bloom"])
@BOTH
def test_a_text_may_begin_with_decoding(name, variant):
    agree(name, variant, Options(cache="stateful"), prompt=0)


@pytest.mark.parametrize(
    "more",
    [{"pad_last_axis": 64}, {"mask": "causal_input"}, {"mask": "qk_and_k", "pad_last_axis": 64},
     {"embeddings": "out"}, {"head": "last"}, {"lm_head_splits": 3}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("name", ["tiny-gpt2", "tiny-llama"])
@BOTH
def test_with_every_other_option(name, variant, more):
    if variant == "split_einsum" or "lm_head_splits" not in more:
        agree(name, variant, Options(cache="stateful", **more), prompt=11)


@BOTH
def test_what_is_remembered_matters(variant):
    """A step after another prompt says something else."""
    model, state, ids, _ = plain("tiny-gpt2")
    module = models.get("gpt2").VARIANTS[variant](model, state, SEQ, Options(cache="stateful"))
    with torch.no_grad():
        said = []
        for prompt in (ids, ids.flip(1)):
            module.reset()
            module(prompt)
            said.append(module.functions[DECODE](ids[:, :1], torch.tensor([9], dtype=torch.int32))[0])
    assert (said[0] - said[1]).abs().max() > 1e-3


def test_states_are_laid_out_as_each_variant_attends():
    model, state, *_ = plain("tiny-llama")
    made = {v: models.get("llama").VARIANTS[v](model, state, SEQ, Options(cache="stateful")) for v in
            ("original", "split_einsum")}  # fmt: skip
    shapes = {variant: {tuple(each.shape) for each in module.states.values()} for variant, module in made.items()}
    assert shapes == {"original": {(1, 2, SEQ, 16)}, "split_einsum": {(1, 32, 1, SEQ)}}
    assert list(made["original"].states) == ["key_cache_0", "value_cache_0", "key_cache_1", "value_cache_1"]


@pytest.mark.parametrize(
    ("options", "more", "reason"),
    [
        ({"cache": "stateful"}, {"task": "encoder"}, "decodes no text"),
        ({"cache": "stateful"}, {"task": "seq2seq"}, "one program that encodes and decodes a whole window"),
        ({"cache": "stateful"}, {"ios_target": "iOS17"}, "needs target=iOS18 or newer, not iOS17"),
        ({"cache": "stateful"}, {"compute": "fp32"}, "the one dtype of Core ML's states"),
        ({"inputs": "fp16"}, {"ios_target": "iOS15"}, "needs target=iOS16 or newer"),
        ({"inputs": "fp16"}, {"vocabulary": 50257}, "50,257 token ids"),
        ({"inputs": "fp16"}, {"vocabulary": 2050}, "exactly up to 2,048"),
    ],
)
def test_refusals(options, more, reason):
    assert reason in refused(Options(**options), more)
    assert refused(Options(**options)) is None


def test_fp16_ids_are_exact_where_they_are_allowed():
    ids = np.arange(building.FP16_EXACT + 1)
    assert (ids.astype(np.float16).astype(int) == ids).all()
    assert int(np.float16(building.FP16_EXACT + 1)) != building.FP16_EXACT + 1
    assert refused(Options(inputs="fp16"), vocabulary=building.FP16_EXACT + 1) is None
    assert refused(Options(inputs="fp16", embeddings="out"), vocabulary=50257) is None

"""Every family in miniature, both variants, every option: the same function as Hugging Face's own module, in fp32.

One tolerance for all: the largest difference is under 1e-4 of the output's peak (fp32 keeps 6e-8, and a thousand
additions in another order lose two or three digits of it).
"""

from itertools import combinations

import numpy as np
import pytest
import torch
from tiny import refused

from ane_sweep.bridge import building
from ane_sweep.bridge.building import Options
from ane_sweep.bridge.kinds import tasks_with
from ane_sweep.worker import models
from ane_sweep.worker.models import weights
from ane_sweep.worker.stages import reference
from tests.bench import families

TOLERANCE = 1e-4
TINY = {option["name"]: option for option in families.tiny_options()}
EVERY = pytest.mark.parametrize("name", TINY)
TEXTS = tasks_with(lambda kind: kind.length == "seq_len" and bool(kind.reads))
OF_TEXTS = pytest.mark.parametrize("name", [name for name, option in TINY.items() if option["task"] in TEXTS])
BOTH = pytest.mark.parametrize("variant", ["original", "split_einsum"])
SEQ = 21

# What the tiny options leave out of each family's checkpoints.
CHANGES = {
    "neox-sequential": ("tiny-gpt-neox", {"use_parallel_residual": False, "rotary_pct": 1.0}),
    "neo-wide-window": ("tiny-gpt-neo", {"window_size": 256}),
    "neo-narrow-window": ("tiny-gpt-neo", {"window_size": 3}),
    "bigcode-many-heads": ("tiny-gpt-bigcode", {"multi_query": False}),
    "opt-350m": ("tiny-opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 32}),
    "bloom-odd-heads": ("tiny-bloom", {"hidden_size": 96, "n_head": 6}),
    "codegen-eight-heads": ("tiny-codegen", {"n_head": 8}),
    "llama-3": ("tiny-llama", {"rope_theta": 500000.0, "head_dim": 32, "rope_scaling": {
        "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 16,
        "rope_type": "llama3"}}),
    "llama-biased-and-tied": ("tiny-llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "gemma-two-heads": ("tiny-gemma", {"num_key_value_heads": 2}),
    "qwen3-ungrouped": ("tiny-qwen3", {"num_key_value_heads": 4, "attention_bias": True}),
    "t5-plain": ("tiny-t5", {"feed_forward_proj": "relu", "tie_word_embeddings": True, "num_decoder_layers": 3}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.ci
@EVERY
@BOTH
def test_both_variants_are_what_hugging_face_computes(name, variant):
    for seed, seq_len in ((0, 32), (1, 7)):
        assert families.fp32_error(TINY[name], variant, seq_len, seed) < TOLERANCE


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("case", CHANGES)
@BOTH
def test_what_differs_within_a_family(case, variant):
    name, changes = CHANGES[case]
    changed = {**TINY[name], "arch": {**TINY[name]["arch"], **changes}}
    assert families.fp32_error(changed, variant, 40) < TOLERANCE


def run(option: dict, variant: str, options: Options, padding: int = 0) -> dict[str, torch.Tensor]:
    """Outputs by name of a variant under options, on seeded ids whose last `padding` are padding."""
    family, model = models.get(option["family"]), {key: option[key] for key in ("family", "task", "arch")}
    state = weights.make_random_state(model, 3)
    module = family.VARIANTS[variant](model, state, SEQ, options)
    assert not module.training
    ids = np.random.default_rng(3).integers(2, model["arch"]["vocab_size"], (1, SEQ), dtype=np.int32)
    valid = np.arange(SEQ)[None] < SEQ - padding
    plain = family.VARIANTS["original"](model, state, SEQ, options) if options.embeddings == "out" else module
    ports = family.ports(model, SEQ, options)
    feeds = [torch.from_numpy(reference.make_feed(port.name, ids, valid, model, plain)[0]) for port in ports.inputs]
    assert [tuple(feed.shape) for feed in feeds] == [port.shape for port in ports.inputs]
    with torch.no_grad():
        made = module(*feeds)
    assert [tuple(value.shape) for value in made] == [port.shape for port in ports.outputs]
    return {port.name: value for port, value in zip(ports.outputs, made)}


def allowed(option: dict, variant: str, options: Options) -> bool:
    longest = option["max_seq_len"]
    given = {"family": option["family"], "task": option["task"], "variant": variant, "seq_len": SEQ, "longest": longest}
    return refused(options, given, vocabulary=option["arch"]["vocab_size"]) is None


VALUES = {
    "head": "last", "mask": "causal_input", "embeddings": "out", "lm_head_splits": 3, "pad_last_axis": 64,
}  # fmt: skip


def agree(option: dict, variant: str, options: Options) -> None:
    expected = run(option, "original", Options())
    got = run(option, variant, options)
    for name, value in got.items():
        peak = expected[name].abs().max()
        wanted = expected[name][:, -1:] if options.head == "last" else expected[name]
        assert (value - wanted).abs().max() < TOLERANCE * peak, (name, options)


@pytest.mark.slow
@pytest.mark.ci
@OF_TEXTS
@BOTH
def test_each_option_alone_changes_nothing_but_the_interface(name, variant):
    tried = 0
    for key, value in (*VALUES.items(), ("mask", "qk_and_k")):
        options = Options(**{key: value})
        if allowed(TINY[name], variant, options):
            agree(TINY[name], variant, options)
            tried += 1
    assert tried >= 1


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", ["tiny-gpt2", "tiny-bloom", "tiny-bert"])
@BOTH
def test_all_pairs_of_options(name, variant):
    values = (*VALUES.items(), ("mask", "qk_and_k"))
    for pair in combinations(values, 2):
        if pair[0][0] != pair[1][0] and allowed(TINY[name], variant, options := Options(**dict(pair))):
            agree(TINY[name], variant, options)


@pytest.mark.parametrize("name", ["tiny-gpt2", "tiny-gpt-neo", "tiny-bloom"])
def test_a_key_mask_hides_keys(name):
    """Variants agree on padded text, and what the mask hides has no influence on what is seen."""
    options = Options(mask="qk_and_k")
    both = [run(TINY[name], variant, options, padding=5)["logits"][:, :-5] for variant in ("original", "split_einsum")]
    assert (both[0] - both[1]).abs().max() < TOLERANCE * both[0].abs().max()
    open_ = run(TINY[name], "original", Options())["logits"][:, :-5]
    assert (both[0] - open_).abs().max() < TOLERANCE * open_.abs().max()  # causal: the last keys were unseen before


def test_a_changed_mask_changes_the_outcome():
    """The mask input is read, not decoration."""
    option = TINY["tiny-gpt2"]
    model = {key: option[key] for key in ("family", "task", "arch")}
    family, state = models.get("gpt2"), weights.make_random_state(model, 0)
    ids = torch.arange(SEQ, dtype=torch.int32)[None]
    for variant in family.VARIANTS:
        module = family.VARIANTS[variant](model, state, SEQ, Options(mask="causal_input"))
        with torch.no_grad():
            causal, everything = (
                module(ids, mask)[0]
                for mask in (torch.full((1, 1, SEQ, SEQ), -1e4).triu(1), torch.zeros(1, 1, SEQ, SEQ))
            )
        assert (causal[:, 0] - everything[:, 0]).abs().max() > 1e-2
        assert (causal[:, -1] - everything[:, -1]).abs().max() > 1e-2  # by way of the other positions


def test_the_head_is_split_into_the_asked_for_number():
    option = TINY["tiny-llama"]
    model = {key: option[key] for key in ("family", "task", "arch")}
    module = models.get("llama").VARIANTS["split_einsum"](
        model, weights.make_random_state(model, 0), 8, Options(lm_head_splits=7)
    )
    assert [part.weight.shape[0] for part in module.head.parts] == [143] * 6 + [142]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_sliding_window": True}, "use_sliding_window=true is not built here"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rotary kind 'yarn' has no split_einsum form"),
    ],
)
def test_what_is_not_built_is_said(changes, message):
    model = {"family": "qwen2", "task": "causal_lm", "arch": {**TINY["tiny-qwen2"]["arch"], **changes}}
    with pytest.raises(ValueError, match=message):
        models.get("qwen2").VARIANTS["split_einsum"](model, weights.make_random_state(model, 0), 8)


@EVERY
def test_an_unknown_task_is_named(name):
    with pytest.raises(ValueError, match="not 'poetry'"):
        models.get(TINY[name]["family"]).skeleton({**TINY[name], "task": "poetry"})


@pytest.mark.parametrize(
    ("options", "more", "reason"),
    [
        ({"head": "last"}, {"task": "encoder"}, "head=last is for decoders; x is of task encoder"),
        ({"mask": "qk_and_k"}, {"task": "seq2seq"}, "mask=qk_and_k is for decoders"),
        ({"embeddings": "out"}, {"task": "seq2seq"}, "embeddings=out is not built for x"),
        ({"lm_head_splits": 2}, {"variant": "original"}, "use variant=split_einsum"),
        ({"norm": "fp32_mean"}, {"variant": "original"}, "norm=fp32_mean needs a norm of single ops"),
        ({"norm": "fp16_ops"}, {"variant": "original"}, "norm=fp16_ops needs a norm of single ops"),
        ({"norm": "fp32"}, {"compute": "fp32"}, "norm=fp32 asks for more than fp16"),
        (
            {"pad_last_axis": 64},
            {"seq_len": 70, "longest": 100},
            "makes seq_len=70 128 inside, beyond the 100 positions",
        ),
        *(
            (
                {name: value},
                {"family": "openai_gpt", "variant": "original"},
                f"{name}={value} with variant=original is not built",
            )
            for name, value in (("mask", "causal_input"), ("cache", "stateful"))
        ),
        ({"mask": "causal_input"}, {"family": "openai_gpt"}, None),
        ({"head": "last", "mask": "causal_input", "lm_head_splits": 4, "norm": "fp32_mean"}, {}, None),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_the_reason(options, more, reason):
    told = refused(Options(**options), {"variant": "split_einsum", "seq_len": 8, "longest": 512}, **more)
    assert told == reason if reason is None else reason in told


def test_a_stage_takes_its_options_from_those_that_are_not_plain():
    assert building.options({"options": {"head": "last"}}) == Options(head="last") and building.options({}) == Options()

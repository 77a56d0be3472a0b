"""Options that repeat what others wrote: batches, a cache passed in and out, masks as they came, classes by name."""

import pytest
import torch

from ane_sweep.bridge.building import DECODE, PREFILL, Options
from ane_sweep.bridge.kinds import tasks_with
from ane_sweep.worker import models
from ane_sweep.worker.models import _build, _hf, weights
from tests.bench import families

TEXTS = tasks_with(lambda kind: kind.length == "seq_len" and bool(kind.reads))
OPTIONS = {option["name"]: option for option in families.tiny_options()}
LENGTH = 12


def built(name, variant="original", **options):
    model = {key: OPTIONS[name][key] for key in ("family", "task", "arch")}
    family, asked = models.get(model["family"]), Options(**options)
    module = family.VARIANTS[variant](model, weights.make_random_state(model, 0), LENGTH, asked)
    return module, family.ports(model, LENGTH, asked)


def ids(rows, name="tiny-gpt2"):
    return torch.randint(
        2, OPTIONS[name]["arch"]["vocab_size"], (rows, LENGTH), generator=torch.Generator().manual_seed(1)
    )


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("variant", ["original", "split_einsum"])
@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option["task"] in TEXTS])
def test_rows_of_a_batch_know_nothing_of_each_other(name, variant):
    module, ports = built(name, variant)
    tokens = ids(3, name).int()
    full = [tokens if port.dtype == "int32" else torch.ones(3, LENGTH) for port in ports.with_batch(3).inputs]
    with torch.inference_mode():
        together = module(*full)
        for row in range(3):
            alone = module(*(value[row : row + 1] for value in full))
            for many, one in zip(together, alone):
                torch.testing.assert_close(many[row : row + 1], one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("variant", ["original", "split_einsum"])
@pytest.mark.parametrize("name", ["tiny-gpt2", "tiny-gpt-neo"])
def test_keys_and_values_that_go_in_and_out_give_what_a_whole_window_does(name, variant):
    whole, _ = built(name, variant)
    passing, ports = built(name, variant, cache="explicit")
    text, half = ids(1, name).int(), LENGTH // 2
    with torch.inference_mode():
        (expected,) = whole(text)
        prompt = torch.cat([text[:, :half], torch.zeros_like(text[:, half:])], dim=1)
        logits, *kept = passing.functions[PREFILL](prompt)
        got = [logits[:, :half]]
        for place in range(half, LENGTH):
            step, *kept = passing.functions[DECODE](text[:, place : place + 1], torch.tensor([place]), *kept)
            got.append(step)
    torch.testing.assert_close(torch.cat(got, dim=1), expected, rtol=1e-4, atol=1e-4)
    taken = passing.with_caches(ports, DECODE)
    assert [port.name for port in taken.inputs[-2:]] == ["key_cache_1", "value_cache_1"]
    assert [port.name for port in taken.outputs[:2]] == ["logits", "new_key_cache_0"]


@pytest.mark.parametrize("variant", ["original", "split_einsum"])
def test_a_mask_computed_inside_is_the_constant_one(variant):
    text = ids(1).int()
    with torch.inference_mode():
        (plain,), (inside,) = (
            built("tiny-gpt2", variant, mask=mask)[0](text) for mask in ("causal_const", "band_part")
        )
    torch.testing.assert_close(inside, plain, rtol=1e-5, atol=1e-5)


def test_a_mask_for_each_head_is_as_many_copies():
    module, _ = built("tiny-gpt2", mask="causal_per_head")
    assert module.mask.shape == (1, OPTIONS["tiny-gpt2"]["arch"]["n_head"], LENGTH, LENGTH)
    assert (module.mask == _hf.make_causal_mask(LENGTH)).all()


def test_classes_have_the_names_of_the_checkpoint():
    assert _build.class_names({"id2label": {0: "NEGATIVE", "1": "POSITIVE"}}, 3) == ["NEGATIVE", "POSITIVE", "LABEL_2"]


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["original", "split_einsum"])
@pytest.mark.parametrize(
    ("name", "options", "more", "least_db"),
    [
        ("tiny-gpt2", {"mask": "band_part"}, 9, 60),
        ("tiny-gpt2", {"mask_dtype": "fp32"}, 4, 60),
        ("tiny-gpt2", {"cache": "explicit"}, 4, 60),
        ("tiny-gpt2", {"batch": 3}, 0, 60),
        ("tiny-distilbert", {"classes": "labels"}, 2, 60),
    ],
)
def test_each_converts_to_what_it_is_for(name, options, more, least_db, variant):
    """`more` ops at least than the plain program has."""
    plain = families.measure(OPTIONS[name], variant, "iOS18")
    made = families.measure(OPTIONS[name], variant, "iOS18", **options)
    assert made["ops"] >= plain["ops"] + more and made["psnr_db"] > least_db

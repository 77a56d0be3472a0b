"""A checkpoint that Hugging Face writes is read back for every family, by our option's architecture and by its own."""

import json

import pytest
import torch
import transformers

from ane_sweep.bridge import families as declared
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.errors import ConfigError
from ane_sweep.planner import checkpoints, served
from ane_sweep.planner.checkpoints import NOISE
from ane_sweep.worker import models
from ane_sweep.worker.models import _hf, weights
from tests.bench import families

TINY = {option["name"]: option for option in families.tiny_options()}
PATH = {"kind": "path", "digest": "x", "allow_pickle": False}


def whole(model, state):
    """What Hugging Face saves under the family's name: of a family that is a part of it, the whole around that part."""
    part = _hf.build_filled(lambda: models.get(model["family"]).skeleton(model), state)
    if model["family"] == "clip":
        around = transformers.CLIPModel(transformers.CLIPConfig(**model["arch"]))
        around.load_state_dict(state, strict=False)
        return around
    if model["family"] == "whisper":
        decoder = {"decoder_attention_heads": 4, "decoder_layers": 1, "decoder_ffn_dim": 64}
        around = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**model["arch"], **decoder))
        around.model.encoder.load_state_dict(state)
        return around
    return part


@pytest.mark.parametrize("name", TINY)
def test_what_hugging_face_saves_is_read_back(tmp_path, name):
    option = TINY[name]
    model = {key: option[key] for key in ("family", "task", "arch")}
    state = weights.make_random_state(model, 1)
    whole(model, state).save_pretrained(tmp_path)
    loaded = weights.load_state(PATH, tmp_path, model)
    assert loaded.keys() == state.keys() and all(torch.equal(loaded[key], state[key]) for key in state)
    config = json.loads((tmp_path / "config.json").read_text())
    # The planner builds what the checkpoint's own config.json describes.
    own = {**model, "arch": {key: value for key, value in config.items() if key not in NOISE}}
    assert config["model_type"].replace("-", "_") == model["family"] and weights.parameter_shapes(
        own
    ) == weights.parameter_shapes(model)
    family = models.get(model["family"])
    feeds = [families.fed(port, model, 8, 0) for port in family.ports(own, 8).inputs]
    with torch.no_grad():
        ours, theirs = (family.VARIANTS["split_einsum"](each, state, 8)(*feeds) for each in (model, own))
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs))


def test_flan_t5_keeps_its_own_head(tmp_path):
    """transformers 5 calls the head tied whatever the checkpoint holds; here its tensor must be there and be used."""
    option = TINY["tiny-t5"]
    model = {key: option[key] for key in ("family", "task", "arch")}
    state = weights.make_random_state(model, 0)
    assert "lm_head.weight" in state and not torch.equal(state["lm_head.weight"], state["shared.weight"])
    tied = {**model, "arch": {**model["arch"], "tie_word_embeddings": True}}
    assert "lm_head.weight" not in weights.make_random_state(tied, 0)
    ids, mask = torch.arange(8, dtype=torch.int32)[None], torch.ones(1, 8)
    for variant in ("original", "split_einsum"):
        module = models.get("t5").VARIANTS[variant]
        with torch.no_grad():
            before = module(model, state, 8)(ids, mask, ids)[1]
            after = module(model, {**state, "lm_head.weight": state["lm_head.weight"] * 2}, 8)(ids, mask, ids)[1]
        torch.testing.assert_close(after, before * 2)


ARCHITECTURES = [
    (option["name"], architecture)
    for option in TINY.values()
    if (serves := declared.serves(option["family"]))
    for architecture, task in serves.architectures.items()
    if task == option["task"] or KINDS[task].length != "architecture"
]


# Whisper's other half, which is left out.
DECODER = {"decoder_attention_heads": 4, "decoder_layers": 1, "decoder_ffn_dim": 64}


def as_hugging_face_computes(model, state, module):
    family = models.get(model["family"])
    (taken,), (given,) = family.ports(model, 1).inputs, family.ports(model, 1).outputs
    fed = families.fed(taken, model, 1, 0)
    whole = module.get_encoder() if model["family"] == "whisper" else module
    with torch.no_grad():
        (ours,) = family.VARIANTS["split_einsum"](model, state, 1)(fed)
        torch.testing.assert_close(ours, whole(**{taken.name: fed})[given.name], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["CLIPVisionModelWithProjection", "CLIPTextModelWithProjection"])
def test_a_tower_alone_is_not_read_as_the_other(tmp_path, kind):
    made = getattr(transformers, kind)
    made.config_class(architectures=[kind]).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    other = TINY["tiny-clip-text" if "Vision" in kind else "tiny-clip-image"]
    with pytest.raises(ConfigError, match=rf"holds a {kind}, this option needs"):
        checkpoints.resolve(other, str(tmp_path), seed=0, allow_pickle=False, digests=tmp_path / "d")


@pytest.mark.parametrize(("name", "architecture"), ARCHITECTURES)
def test_every_architecture_that_a_family_serves_is_read_as_hugging_face_saves_it(tmp_path, name, architecture):
    """And computes what Hugging Face's class computes up to the head that is left out."""
    made = getattr(transformers, architecture)
    torch.manual_seed(0)
    tied = (
        {"tie_word_embeddings": True} if name == "tiny-t5" else {}
    )  # transformers 5 ties a T5's head whatever it says
    arch = TINY[name]["arch"]
    if part := declared.serves(TINY[name]["family"]).parts.get(TINY[name]["task"]):
        arch = {**arch[part], "projection_dim": arch["projection_dim"]}
    module = made(made.config_class(**{**arch, **(DECODER if name == "tiny-whisper" else {}), **tied})).eval()
    module.save_pretrained(tmp_path)
    option = served.option(str(tmp_path))
    model = {key: option[key] for key in ("family", "task", "arch")}
    assert model["family"] == TINY[name]["family"]
    state = weights.load_state(PATH, tmp_path, model)
    assert option["parameters"] == pytest.approx(sum(tensor.numel() for tensor in state.values()), rel=0.04)
    if KINDS[model["task"]].length == "architecture":
        as_hugging_face_computes(model, state, module)
    if model["task"] != "encoder":
        return
    ids = torch.arange(2, 10, dtype=torch.int32)[None]
    base = getattr(module, module.base_model_prefix, module)
    with torch.no_grad():
        (ours,) = models.get(model["family"]).VARIANTS["split_einsum"](model, state, 8)(ids, torch.ones(1, 8))
        torch.testing.assert_close(ours, base(ids).last_hidden_state, atol=1e-4, rtol=1e-4)

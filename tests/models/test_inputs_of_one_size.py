"""Pictures, spectra and texts of a fixed length: what Hugging Face saves is loaded by its folder, what an axis cannot mean
is said, and what such a model is fed with lies in the range that its processor leaves."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tiny import option

from ane_sweep.bridge.building import Options
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.errors import ConfigError
from ane_sweep.planner import checkpoints, config
from ane_sweep.planner.settle import plan_for
from ane_sweep.store.cache import open_store
from ane_sweep.worker import models
from ane_sweep.worker.feeds import seeds
from ane_sweep.worker.models import _hf, weights
from ane_sweep.worker.stages import reference
from tests.bench import families

NAMES = [one["name"] for one in families.tiny_options() if KINDS[one["task"]].length == "architecture"]
RANDOM = {"kind": "random", "digest": "random:0", "seed": 0}


def model_of(name, **arch):
    found = option(name)
    return {"family": found["family"], "task": found["task"], "arch": {**found["arch"], **arch}}


def saved(folder):
    """Name of an option -> the folder of a whole model of another size than the option's, as the hub would hold it."""
    small = {"num_attention_heads": 2, "num_hidden_layers": 3, "hidden_size": 16, "intermediate_size": 32}
    picture = {"image_size": 24, "patch_size": 8}
    whisper = {"d_model": 16, "encoder_layers": 3, "encoder_attention_heads": 2, "encoder_ffn_dim": 32, "vocab_size": 60,
               "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 32, "max_source_positions": 10,
               "num_mel_bins": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
    text = {"vocab_size": 60, "max_position_embeddings": 12, "eos_token_id": 2, "bos_token_id": 1}
    towers = transformers.CLIPConfig(text_config=small | text, vision_config=small | picture, projection_dim=8)
    clip = transformers.CLIPModel(towers)
    made = {
        "tiny-vit": transformers.ViTForImageClassification(transformers.ViTConfig(**small, **picture, num_labels=5)),
        "tiny-vit-encoder": transformers.ViTModel(transformers.ViTConfig(**small, **picture)),
        "tiny-whisper": transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**whisper)),
        "tiny-clip-image": clip,
        "tiny-clip-text": clip,
        "tiny-convnext": transformers.ConvNextForImageClassification(
            transformers.ConvNextConfig(hidden_sizes=[8, 12], depths=[2, 1], num_stages=2, image_size=24, num_labels=5)
        ),
    }
    for name, module in made.items():
        module.save_pretrained(folder / name)
    return {name: folder / name for name in made}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_of_the_hub_is_loaded_by_its_folder(name, folders, tmp_path):
    """Layers and sizes are the checkpoint's own; both variants compute what transformers' own loader does with it."""
    wish = option(name)
    source = checkpoints.resolve(wish, str(folders[name]), seed=0, allow_pickle=False, digests=tmp_path / "digests")
    assert source.layers == 3 and source.cut_points == (4 if name == "tiny-convnext" else 7)
    model = {"family": wish["family"], "task": wish["task"], "arch": dict(source.arch)}
    path = {"kind": "path", "digest": source.digest, "allow_pickle": False}
    family, state = models.get(wish["family"]), weights.load_state(path, folders[name], model)
    (port,) = family.ports(model, 1).inputs
    fed = families.fed(port, model, 1, 0)
    with torch.no_grad():
        expected = loaded_by_transformers(name, folders[name], fed)
        for variant in family.VARIANTS:
            (got,) = family.VARIANTS[variant](model, state, 1)(fed)
            assert got.shape == expected.shape == family.ports(model, 1).outputs[0].shape
            assert (got - expected).abs().max() < 1e-4 * expected.abs().max()


def loaded_by_transformers(name, folder, fed):
    if name == "tiny-whisper":
        return transformers.WhisperModel.from_pretrained(folder).encoder.eval()(fed).last_hidden_state
    if name == "tiny-vit-encoder":
        return transformers.ViTModel.from_pretrained(folder).eval()(fed).last_hidden_state
    if name == "tiny-clip-image":
        return transformers.CLIPModel.from_pretrained(folder).eval().get_image_features(fed).pooler_output
    if name == "tiny-clip-text":
        return transformers.CLIPModel.from_pretrained(folder).eval().get_text_features(fed).pooler_output
    return transformers.AutoModelForImageClassification.from_pretrained(folder).eval()(fed).logits


@pytest.mark.parametrize("eos", [2, 299])
def test_a_text_is_looked_at_where_it_ends(eos):
    """At the first end, or in files from before that was right at the highest id; what follows has no influence."""
    arch = option("tiny-clip-text")["arch"]
    model = model_of("tiny-clip-text", text_config={**arch["text_config"], "eos_token_id": eos})
    family, state = models.get("clip"), weights.make_random_state(model, 0)
    (port,) = family.ports(model, 1).inputs
    assert port.last == 299
    ids = families.fed(port, model, 1, 0)
    ends = int((ids[0] == 299).int().argmax())
    for variant in family.VARIANTS.values():
        module = variant(model, state, 1)
        with torch.no_grad():
            before, after, other = (module(each)[0] for each in (ids, changed(ids, ends + 1), changed(ids, ends - 1)))
        assert torch.equal(before, after) and not torch.allclose(before, other)


def changed(ids, position):
    ids = ids.clone()
    ids[0, position] = 7
    return ids


def test_filling_buffers_draws_no_weight_anew():
    """transformers initialises a module's buffers and what weights are beneath it in one go."""
    model = model_of("tiny-clip-text")
    state = weights.make_random_state(model, 0)
    kept = {name: tensor.clone() for name, tensor in state.items()}
    _hf.build_filled(lambda: models.get("clip").skeleton(model), state)
    assert all(torch.equal(state[name], kept[name]) for name in state)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_seeded_in_the_processors_range_and_said(name, tmp_path):
    model = model_of(name)
    wish = {"count": 3, "seed": 0, "text": "", "tokenizer": None}
    result = reference.run({"model": model, "weights": RANDOM, "seq_len": 1, "texts": wish}, {}, tmp_path)
    (port,) = models.get(model["family"]).ports(model, 1).inputs
    with np.load(tmp_path / "inputs.npz") as arrays, np.load(tmp_path / "outputs.npz") as outputs:
        (fed,), (given,) = ([arrays[port.name]], outputs.values())
    assert fed.shape == (3, *port.shape) and not np.array_equal(given[0], given[1])
    said = {key: value for key, value in result.realised.items() if not key.startswith("texts_")}
    assert result.realised["texts_count"] == 3
    if port.seeded is None:
        assert said == {"texts": "synthetic"} and (fed == port.last).any(axis=(1, 2)).all()
        return
    assert said == {"inputs": f"{port.name}: {seeds.describe_values(port)}"}
    assert f"between {port.seeded.low:g} and {port.seeded.high:g}" in said["inputs"]
    assert port.seeded.low <= fed.min() < fed.max() <= port.seeded.high
    assert not np.array_equal(fed[0], fed[1]) and fed.std() > 0.2 * (port.seeded.high - port.seeded.low)


@pytest.mark.parametrize("name", NAMES)
def test_seq_len_is_said_to_mean_nothing_and_costs_nothing(name, tmp_path):
    request = config.load(["-m", f"model={name}", "weights=random", "seq_len=64,128,4096"])
    with open_store(tmp_path) as store:
        plan = plan_for(request, store, tmp_path)
    assert not plan.refused and len({tuple(keys) for keys in plan.chains.values()}) == 1
    said = f"seq_len not applicable: the input of model={name} has one size, whatever seq_len is"
    assert plan.notes.count(said) == 1
    assert not [task.label for task in plan.tasks.values() if "seq_len" in task.label]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", vars(Options()))
def test_every_option_is_planned_or_refused_in_one_true_sentence(name, axis, tmp_path):
    value = {"head": "last", "mask": "causal_input", "embeddings": "out", "lm_head_splits": 2, "norm": "fp32",
             "pad_last_axis": 64, "cache": "stateful", "inputs": "fp16", "batch": 2, "mask_dtype": "fp32",
             "classes": "labels", "index_guards": "negative", "output_type": "fp32"}[axis]  # fmt: skip
    request = config.load([f"model={name}", "weights=random", "variant=split_einsum", f"{axis}={value}"])
    with open_store(tmp_path) as store:
        plan = plan_for(request, store, tmp_path)
    task = option(name)["task"]
    said = {
        "batch": f"batch=2 is built for models that take seq_len positions; {name} is of task {task}; leave it out",
        "classes": f"classes=labels is for classifiers of texts, and {name} is of task {task}",
    }.get(
        axis,
        f"{axis}={value} is built for models that take seq_len tokens; {name} is of task {task}, whose input has one size; leave it out",
    )
    assert list(plan.refused.values()) == ([] if axis in ("norm", "inputs", "output_type") else [said])


def test_parts_of_a_program_that_are_not_there_are_no_chunks_of_their_own(tmp_path):
    asked = ["-m", f"model={','.join(NAMES)}", "weights=random", "chunks=3", "own_chunks=embeddings,head"]
    request = config.load(asked)
    with open_store(tmp_path) as store:
        plan = plan_for(request, store, tmp_path)
    left = {(cell.model, cell.own_chunks) for cell in request.cells if cell.key not in plan.refused}
    assert left == {("tiny-clip-text", "embeddings"), *((name, "head") for name in ("tiny-vit", "tiny-convnext"))}
    assert all("embeddings=in" not in reason for reason in plan.refused.values())


def test_ids_beyond_fp16_are_those_of_the_input_alone():
    """Whisper's and the image tower's config.json have a vocabulary that no input is of."""
    assert KINDS["audio_encoder"].count_ids({"vocab_size": 51865}) == 0
    assert KINDS["image_encoder"].count_ids(option("clip-image")["arch"]) == 0
    text = KINDS["text_encoder"]
    assert text.count_ids(option("clip-text")["arch"]) == 49408 == text.count_ids({})


def test_a_wrong_size_within_a_tower_is_said_before_anything_starts():
    arch = {
        "text_config": {"hidden_size": "wide", "num_attention_heads": 2},
        "vision_config": {"hidden_size": 9, "num_attention_heads": 2},
    }
    wish = {**option("tiny-clip-text"), "arch": arch}
    with pytest.raises(ConfigError) as caught:
        checkpoints.resolve(wish, "random", seed=0, allow_pickle=False, digests=Path("digests"))
    assert "arch.text_config.hidden_size='wide': expected" in str(caught.value)
    assert "arch.vision_config.num_attention_heads=2: does not divide hidden_size=9" in str(caught.value)

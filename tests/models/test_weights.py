"""Checkpoints of every spelling are read; whatever does not fit is refused by name."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from ane_sweep.errors import WeightsError
from ane_sweep.worker import models
from ane_sweep.worker.models import weights
from ane_sweep.worker.models._safetensors import _DTYPES, SafetensorsFile

GPT2 = {
    "family": "gpt2", "task": "causal_lm",
    "arch": {"activation_function": "gelu_new", "n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 8,
             "vocab_size": 30, "bos_token_id": 0, "eos_token_id": 0},
}  # fmt: skip
BERT = {
    "family": "bert", "task": "encoder",
    "arch": {"hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 8, "num_attention_heads": 2,
             "num_hidden_layers": 1, "type_vocab_size": 2, "vocab_size": 30},
}  # fmt: skip
PATH = {"kind": "path", "digest": "x", "allow_pickle": False}


@pytest.fixture
def gpt2_state():
    return weights.make_random_state(GPT2, 1)


def store(folder, tensors, **config):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_hub_gpt2_has_no_prefix_and_carries_masks(tmp_path, gpt2_state):
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in gpt2_state.items()}
    tensors |= {"h.0.attn.bias": torch.ones(1, 1, 8, 8), "h.0.attn.masked_bias": torch.tensor(-1e4)}
    assert same(weights.load_state(PATH, store(tmp_path, tensors), GPT2), gpt2_state)


def test_a_tied_head_may_be_there_as_well_or_alone(tmp_path, gpt2_state):
    table = gpt2_state["transformer.wte.weight"]
    both = gpt2_state | {"lm_head.weight": table.clone()}
    assert same(weights.load_state(PATH, store(tmp_path, both), GPT2), gpt2_state)
    alone = {name: tensor for name, tensor in both.items() if name != "transformer.wte.weight"}
    assert same(weights.load_state(PATH, store(tmp_path, alone), GPT2), gpt2_state)


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_bert_with_prefix_old_names_and_other_heads(tmp_path, prefix):
    state = weights.make_random_state(BERT, 1)
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
           for name, tensor in state.items()}  # fmt: skip
    tensors = {prefix + name: tensor for name, tensor in old.items()}
    tensors |= {f"{prefix}pooler.dense.bias": torch.zeros(16), "cls.predictions.bias": torch.zeros(30)}
    tensors[f"{prefix}embeddings.position_ids"] = torch.arange(8)[None]
    assert same(weights.load_state(PATH, store(tmp_path, tensors), BERT), state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(tmp_path, gpt2_state, dtype):
    narrow = {name: tensor.to(dtype) for name, tensor in gpt2_state.items()}
    loaded = weights.load_state(PATH, store(tmp_path, narrow), GPT2)
    assert same(loaded, {name: tensor.float() for name, tensor in narrow.items()})


def test_shards(tmp_path, gpt2_state):
    names = list(gpt2_state)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: gpt2_state[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert same(weights.load_state(PATH, tmp_path, GPT2), gpt2_state)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"lists 1 file\(s\) that are not beside it, e\.g\. 'model-00002"):
        weights.load_state(PATH, tmp_path, GPT2)
    index["weight_map"][names[0]] = "../elsewhere.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsError, match=r"not beside it, e\.g\. '\.\./elsewhere"):
        weights.load_state(PATH, tmp_path, GPT2)
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(WeightsError, match="is not a weight index"):
        weights.load_state(PATH, tmp_path, GPT2)


def test_pickles_are_refused_unless_allowed(tmp_path, gpt2_state):
    torch.save(gpt2_state, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=r"pytorch_model\.bin is a pickle.* with allow_pickle=true"):
        weights.load_state(PATH, tmp_path, GPT2)
    assert same(weights.load_state(PATH | {"allow_pickle": True}, tmp_path, GPT2), gpt2_state)


class Evil:
    def __reduce__(self):
        return print, ("code ran",)


def test_code_in_an_allowed_pickle_still_does_not_run(tmp_path, capsys):
    torch.save({"transformer.wte.weight": Evil()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="cannot be read as a pickle of tensors"):
        weights.load_state(PATH | {"allow_pickle": True}, tmp_path, GPT2)
    assert "code ran" not in capsys.readouterr().out


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_a_corrupt_file(tmp_path, gpt2_state, value):
    gpt2_state["transformer.h.0.mlp.c_fc.weight"][3, 4] = value
    with pytest.raises(
        WeightsError, match=r"transformer\.h\.0\.mlp\.c_fc\.weight in .* not finite; the file is corrupt"
    ):
        weights.load_state(PATH, store(tmp_path, gpt2_state), GPT2)


def test_a_truncated_file(tmp_path, gpt2_state):
    path = store(tmp_path, gpt2_state) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WeightsError, match=r"model\.safetensors is no whole safetensors file"):
        weights.load_state(PATH, tmp_path, GPT2)


def test_misfits_are_named_together(tmp_path, gpt2_state):
    del gpt2_state["transformer.ln_f.bias"]
    gpt2_state["transformer.wpe.weight"] = torch.zeros(9, 16)
    gpt2_state["adapter.down"] = torch.zeros(2)
    with pytest.raises(WeightsError) as caught:
        weights.load_state(PATH, store(tmp_path, gpt2_state), GPT2)
    text = str(caught.value)
    assert "1 tensor(s) missing: transformer.ln_f.bias" in text
    assert "1 tensor(s) of another shape: transformer.wpe.weight is [9, 16], the model's is [8, 16]" in text
    assert "1 tensor(s) unknown to the model: adapter.down" in text


def test_an_empty_folder_and_no_folder(tmp_path):
    with pytest.raises(WeightsError, match=r"no model\.safetensors .*index\.json\) in "):
        weights.load_state(PATH, tmp_path, GPT2)
    with pytest.raises(WeightsError, match="need a checkpoint folder"):
        weights.load_state(PATH, None, GPT2)


def test_same_shapes_other_model(tmp_path, gpt2_state):
    with pytest.raises(WeightsError, match=r"config\.json describes another model: n_head is 4, the model's is 2"):
        weights.load_state(PATH, store(tmp_path, gpt2_state, n_head=4, n_embd=16), GPT2)


def test_integers_are_not_weights(tmp_path, gpt2_state):
    gpt2_state["transformer.ln_f.bias"] = torch.zeros(16, dtype=torch.int64)
    with pytest.raises(WeightsError, match=r"transformer\.ln_f\.bias in .* is torch\.int64"):
        weights.load_state(PATH, store(tmp_path, gpt2_state), GPT2)


def test_random_weights_depend_on_seed_and_name_alone():
    state = weights.load_state({"kind": "random", "digest": "random:1", "seed": 1}, None, GPT2)
    assert same(state, weights.make_random_state(GPT2, 1))
    assert not same(state, weights.make_random_state(GPT2, 2))
    deeper = weights.make_random_state(GPT2 | {"arch": GPT2["arch"] | {"n_layer": 3}}, 1)
    assert all(torch.equal(deeper[name], tensor) for name, tensor in state.items())
    first, second = deeper["transformer.h.0.mlp.c_fc.weight"], deeper["transformer.h.1.mlp.c_fc.weight"]
    assert not torch.equal(first, second)


def test_random_weights_are_the_same_bits_everywhere():
    """Pinned: a cache key "random:0" promises these very numbers, on any machine."""
    state = weights.make_random_state(GPT2, 0)
    assert [round(v, 7) for v in state["transformer.wte.weight"][0, :3].tolist()] == [-0.0252438, 0.0013762, -0.1567913]


def test_random_weights_give_activations_that_fp16_can_hold():
    model = {"family": "gpt2", "task": "causal_lm",
             "arch": GPT2["arch"] | {"n_embd": 128, "n_head": 4, "n_layer": 8}}  # fmt: skip
    module = models.get("gpt2").VARIANTS["original"](model, weights.make_random_state(model, 0), 8)
    peaks = []
    for block in module.hf.transformer.h:
        block.register_forward_hook(lambda _m, _i, output: peaks.append(float(output.abs().max())))
    with torch.no_grad():
        (logits,) = module(torch.arange(8, dtype=torch.int32)[None])
    assert len(peaks) == 8 and max(peaks) < 100
    assert 0.3 < float(logits.std()) < 3


def test_a_file_is_read_within_less_memory_than_it_takes(tmp_path):
    """safetensors itself maps all of a file as private and writable, which RLIMIT_DATA counts."""
    header = {
        "large": {"dtype": "F32", "shape": [1 << 18, 1 << 10], "data_offsets": [0, 1 << 30]},
        "small": {"dtype": "BF16", "shape": [3, 2], "data_offsets": [1 << 30, (1 << 30) + 12]},
    }
    text = json.dumps(header).encode()
    with (tmp_path / "sparse.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + (1 << 30) + 12)
        file.seek(-12, 2)
        file.write(torch.arange(6).bfloat16().view(torch.uint8).numpy().tobytes())
    code = (
        "import resource, sys; from pathlib import Path; from ane_sweep.bridge import protocol\n"
        "from ane_sweep.worker.models._safetensors import SafetensorsFile\n"
        "limit = protocol.status_fields()['VmData'] + (64 << 20); resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))\n"
        "file = SafetensorsFile(Path(sys.argv[1])); print(file.view('small').tolist(), file.view('large')[5].sum().item())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "sparse.safetensors")]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        == "[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]] 0.0\n"
    )


_ANY_TENSOR = st.tuples(st.sampled_from(sorted(_DTYPES)), st.lists(st.integers(0, 3), max_size=3))


@given(st.dictionaries(st.text(min_size=1, max_size=5), _ANY_TENSOR, max_size=4))
def test_a_file_is_read_as_safetensors_reads_it(drawn):
    made = {name: torch.randint(0, 2, shape).to(_DTYPES[dtype]) for name, (dtype, shape) in drawn.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.safetensors"
        save_file(made, path)
        read = SafetensorsFile(path)
        assert read.shapes.keys() == made.keys()
        for name, tensor in made.items():
            assert read.view(name).dtype == tensor.dtype and read.view(name).shape == tensor.shape
            assert bytes(read.view(name).view(-1).view(torch.uint8).numpy()) == bytes(
                tensor.view(-1).view(torch.uint8).numpy()
            )

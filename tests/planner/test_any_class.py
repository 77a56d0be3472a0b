"""A checkpoint folder of a class that no family serves is taken as a module of transformers' own class."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import COMMIT

from ane_sweep.__main__ import main
from ane_sweep.planner import any_class, modules, served

BERT = {"model_type": "bert", "vocab_size": 300, "num_hidden_layers": 2}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(**config):
        (tmp_path / "net").mkdir()
        (tmp_path / "net" / "config.json").write_text(json.dumps(config))
        (tmp_path / "net" / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
        return tmp_path / "net"

    return make


@pytest.mark.parametrize(
    ("config", "inputs"),
    [
        (BERT | {"architectures": ["BertForTokenClassification"]},
         {"input_ids": {"shape": [1, "${seq_len}"], "dtype": "int64", "range": [0, 300]}}),
        ({"model_type": "resnet", "num_channels": 3, "architectures": ["ResNetForImageClassification"]},
         {"pixel_values": [1, 3, 224, 224]}),
        ({"model_type": "swin", "image_size": 64, "architectures": ["SwinForImageClassification"]},
         {"pixel_values": [1, 3, 64, 64]}),
    ],
)  # fmt: skip
def test_its_inputs_follow_from_its_config(folder, config, inputs):
    made = folder(**config)
    option = served.option("./net")
    assert option["inputs"] == inputs and option["family"] == "module"
    assert option["path"] == f"transformers:{config['architectures'][0]}.from_pretrained"
    assert option["kwargs"]["pretrained_model_name_or_path"] == str(made)
    assert option["sources"] == [
        str(made.relative_to(made.parent) / name) for name in ("config.json", "model.safetensors")
    ]


def test_a_length_is_an_axis_of_it_and_its_files_are_in_its_key(folder, capsys):
    made = folder(**BERT, architectures=["BertForTokenClassification"])
    words = ["plan", "-m", "model=./net", "seq_len=16,32", "latency=off", "out=o"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "2 fp32 references" in said and "2 conversions" in said and "not applicable" not in said
    option = {**served.option("./net"), "inputs": {"x": [1, 16]}}
    before = modules.resolve(option, "pretrained", 0, Path("d.json")).arch
    (made / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{} ")
    assert modules.resolve(option, "pretrained", 0, Path("d.json")).arch != before


@pytest.mark.parametrize(
    "config",
    [
        BERT | {"architectures": ["BertForNothing"]},
        BERT | {"architectures": ["BertForTokenClassification"], "model_type": "bert9"},
        {"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForCTC"], "feat_extract_norm": "group"},
        BERT | {"architectures": []},
    ],
)
def test_what_transformers_lacks_or_has_no_known_input_is_refused_as_before(folder, config):
    path = folder(**config)
    assert any_class.option("./net", path, config) is None
    assert main(["plan", "model=./net", "out=o"]) == 2


@pytest.mark.slow
def test_token_classes_of_a_folder_are_converted_and_scored(tmp_path, monkeypatch, capsys):
    import transformers

    monkeypatch.chdir(tmp_path)
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=300, num_labels=4
    )
    transformers.BertForTokenClassification(config).save_pretrained("ner")
    assert main(["model=./ner", "seq_len=16", "latency=off", "tracking.enabled=false", "out=o"]) == 0
    assert "PSNR" in capsys.readouterr().out


def test_another_wrong_word_says_nothing_of_its_inputs(folder, capsys):
    folder(**BERT, architectures=["BertForTokenClassification"])
    assert main(["plan", "model=./net", "precison=p4", "out=o"]) == 2
    said = capsys.readouterr().err
    assert "precison" in said and "seq_len" not in said


def test_a_hub_id_is_taken_from_the_cache_and_without_its_weights_the_fetch_is_named(tmp_path):
    snapshot = tmp_path / "hf" / "hub" / "models--me--ner" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(BERT | {"architectures": ["BertForTokenClassification"]}))
    refs = snapshot.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text(COMMIT)
    command = [sys.executable, "-P", "-m", "ane_sweep", "plan", "model=me/ner", "seq_len=8", "out=o"]
    env = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 2 and "fetch them: hf download me/ner" in done.stderr, done.stderr
    (snapshot / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "1 conversions" in done.stdout, done.stderr

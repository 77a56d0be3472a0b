"""Scores of a task: Hugging Face's perplexity, and figures with known right answers. With the models that ship."""

import hashlib
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ane_sweep
from ane_sweep import data
from ane_sweep.errors import StageError
from ane_sweep.worker import runtimes
from ane_sweep.worker.feeds import agreement
from ane_sweep.worker.params import Model
from ane_sweep.worker.stages import evaluate, examples

SHIPPED = Path(data.__file__).parent
TALE = SHIPPED / "tale"


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small products are not worth two threads that wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def arch(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text())


def read(tmp_path: Path, model: str, file: Path, score: str, rows: int = 8, seq_len: int = 24, **more: int):
    """The stage `examples` on one of the shipped models -> (result, its folder)."""
    folder, out = SHIPPED / model, tmp_path / "examples"
    out.mkdir()
    family, task = {"tale": ("gpt2", "causal_lm"), "mood": ("distilbert", "classifier")}[model]
    asked = {
        "score": score,
        "data": hashlib.sha256(file.read_bytes()).hexdigest(),
        "form": file.suffix,
        "rows": rows,
        **more,
    }
    params = {
        "model": {"family": family, "task": task, "arch": arch(folder)}, "seq_len": seq_len, "examples": asked, "tokenizer": "its",
        "weights": {"kind": "pretrained", "digest": "its", "allow_pickle": False},
    }  # fmt: skip
    return examples.run(params, {"checkpoint": folder, "data": file}, out), out


class Answers(runtimes.Runtime):
    """Says of the n-th input what `answer(n, inputs)` does."""

    def __init__(self, answer):
        self.answer, self.asked, self.realised = answer, 0, {"runtime": "fake"}

    def predict(self, inputs):
        self.asked += 1
        return {"logits": self.answer(self.asked - 1, inputs)}


def evaluated(monkeypatch, tmp_path: Path, folder: Path, score: str, task: str, answer, **options) -> dict[str, float]:
    fake = Answers(answer)
    monkeypatch.setattr(runtimes, "get", lambda _: SimpleNamespace(load=lambda params, inputs: fake))
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    params = {"model": {"task": task}, "runtime": "fake", "score": score, "options": options}
    result = evaluate.run(params, {"examples": folder}, out)
    assert {one.source for one in result.metrics} == {"fake"} and {one.kind for one in result.metrics} == {"measured"}
    return {one.name: one.value for one in result.metrics}


@pytest.fixture(scope="module")
def hf():
    import torch
    from transformers import AutoTokenizer, GPT2LMHeadModel

    return GPT2LMHeadModel.from_pretrained(TALE, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(TALE)


def huggingfaces(model, tokenizer, text: str, length: int, stride: int) -> float:
    """The loop of Hugging Face's page on perplexity of fixed-length models; a window's mean counts for its scored tokens."""
    import torch

    ids = tokenizer(text, return_tensors="pt").input_ids
    total = count = before = 0
    for begin in range(0, ids.shape[1], stride):
        end = min(begin + length, ids.shape[1])
        window, labels = ids[:, begin:end], ids[:, begin:end].clone()
        labels[:, : -(end - before)] = -100
        scored = int((labels[:, 1:] != -100).sum())
        with torch.no_grad():
            total, count = total + model(window, labels=labels).loss.item() * scored, count + scored
        before = end
        if end == ids.shape[1]:
            break
    return math.exp(total / count)


@pytest.mark.parametrize(("stride", "batch"), [(24, 1), (12, 1), (5, 1), (12, 2)])
def test_perplexity_is_that_of_hugging_faces_sliding_window(tmp_path, monkeypatch, hf, stride, batch):
    import torch

    text = (SHIPPED / "texts" / "tales.txt").read_text()[:400]
    (tmp_path / "a.txt").write_text(text)
    result, folder = read(tmp_path, "tale", tmp_path / "a.txt", "perplexity", rows=10**6, stride=stride)
    model, tokenizer = hf

    def answer(_, inputs):
        assert len(inputs["input_ids"]) == batch
        with torch.no_grad():
            return model(torch.from_numpy(inputs["input_ids"]).long()).logits.numpy()

    found = evaluated(monkeypatch, tmp_path, folder, "perplexity", "causal_lm", answer, batch=batch)
    expected = huggingfaces(model, tokenizer, text, 24, stride)
    for name in ("perplexity", "perplexity_torch"):
        assert found[name] == pytest.approx(expected, rel=1e-5), name
    assert found["task_kl"] < 1e-9 and found["task_top1_agreement"] == 1.0
    told = result.realised["scored_on"]
    missed = (
        told["windows"] - 1 if stride == 24 else 0
    )  # where windows do not overlap, nothing stands before their first token
    assert told["positions"] == found["score_positions"] == told["tokens_of_file"] - 1 - missed


class Numbers:
    """A tokenizer of numbers between spaces."""

    def no_padding(self): ...
    def no_truncation(self): ...
    def token_to_id(self, name): ...

    def encode(self, text, add_special_tokens=True):
        return SimpleNamespace(ids=[int(word) for word in text.split()])


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 60), st.integers(2, 20), st.data())
def test_every_token_is_scored_once_with_as_much_before_it_as_the_stride_leaves(
    tmp_path_factory, count, seq_len, drawn
):
    stride = drawn.draw(st.integers(1, seq_len))
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_text(" ".join(map(str, range(count))))
    asked = examples.FileParams("perplexity", "", rows=10**6, stride=stride)
    model = Model(task="causal_lm", arch={"vocab_size": count})
    ids, valid, wanted, _ = examples._read_windows(Numbers(), path, asked, model, seq_len)
    scored = wanted["scored"]
    first = [ids[0, 0], *(row[0] for row in ids[1:] if stride == seq_len)]
    assert sorted([*wanted["target"], *first]) == list(range(count))
    assert (np.concatenate([row[where] for row, where in zip(ids, scored)]) + 1 == wanted["target"]).all()
    assert (
        all(where.argmax() >= seq_len - stride - 1 for where in scored[1:] if where.any()) and (valid | ~scored).all()
    )


def test_rows_bound_the_work_and_are_told(tmp_path):
    result, folder = read(tmp_path, "tale", SHIPPED / "texts" / "tales.txt", "agreement", rows=3, stride=12)
    assert result.realised["scored_on"] | {"sha256": ""} == {
        "sha256": "", "windows": 3, "positions": 23 + 12 + 12, "tokens_of_file": 5058, "stride": 12,
    }  # fmt: skip
    with np.load(folder / "outputs.npz") as arrays:
        assert arrays["logits"].shape == (47, 1024)


def test_a_file_that_changed_since_the_plan_is_told(tmp_path):
    (tmp_path / "a.txt").write_text("some text")
    asked = {"score": "perplexity", "data": "0" * 64, "form": ".txt", "rows": 1, "stride": 1}
    with pytest.raises(StageError, match=r"a\.txt has changed since the plan was made; run the same command again"):
        examples.run({"examples": asked, "model": {}}, {"data": tmp_path / "a.txt"}, tmp_path)


def test_a_text_of_one_token_has_no_perplexity(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(StageError, match="1 token long; perplexity needs a token that follows another"):
        read(tmp_path, "tale", tmp_path / "a.txt", "perplexity", stride=12)


def test_the_classifier_that_ships_is_mostly_right_and_a_swapped_answer_costs_what_it_should(tmp_path, monkeypatch):
    file = SHIPPED / "texts" / "moods.tsv"
    result, folder = read(tmp_path, "mood", file, "accuracy", rows=240, seq_len=48)
    with np.load(folder / "outputs.npz") as arrays:
        torchs = arrays["logits"]
    with np.load(folder / "wanted.npz") as arrays:
        labels = arrays["label"]
    assert result.realised["scored_on"]["rows"] == 240 and len(torchs) == 240
    same = evaluated(monkeypatch, tmp_path, folder, "accuracy", "classifier", lambda n, _: torchs[n])
    assert same["accuracy"] == same["accuracy_torch"] == (torchs[:, 0].argmax(-1) == labels).mean()
    assert same["label_agreement"] == 1.0 and 0.75 < same["accuracy"] < 0.95
    turned = evaluated(
        monkeypatch,
        tmp_path,
        folder,
        "accuracy",
        "classifier",
        lambda n, _: torchs[n][:, [1, 2, 0]] if n < 60 else torchs[n],
    )
    assert turned["label_agreement"] == 0.75 and turned["accuracy_torch"] == same["accuracy"]
    lines = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]
    assert len(lines) == 240 and sum(line["chosen"] == line["label"] for line in lines) / 240 == turned["accuracy"]
    only = evaluated(monkeypatch, tmp_path, folder, "agreement", "classifier", lambda n, _: torchs[n])
    assert set(only) == {"label_agreement", "task_kl", "score_rows"}


def test_vectors_are_compared_by_their_order_and_by_the_grades(monkeypatch, tmp_path):
    planes = np.zeros((4, 1, 2, 2), np.float32)
    planes[:, 0] = np.array([(1, 0), (1, 0.2), (0, 1), (0.5, 1)])[:, None]
    np.savez(tmp_path / "outputs.npz", logits=planes)
    np.savez(tmp_path / "inputs.npz", input_ids=np.zeros((4, 1, 2), np.int32), valid=np.ones((4, 2), bool))
    np.savez(tmp_path / "wanted.npz", pair=np.array([(0, 1), (0, 2), (0, 3)]), grade=np.array([5.0, 0.0, 2.0]))
    same = evaluated(monkeypatch, tmp_path, tmp_path, "embedding", "encoder", lambda n, _: planes[n])
    assert same == {
        "embedding_rank_agreement": 1.0, "embedding_cosine": pytest.approx(1.0), "embedding_spearman": pytest.approx(1.0),
        "embedding_spearman_torch": pytest.approx(1.0), "score_rows": 4,
    }  # fmt: skip
    swapped = evaluated(monkeypatch, tmp_path, tmp_path, "embedding", "encoder", lambda n, _: planes[[0, 2, 1, 3][n]])
    assert swapped["embedding_spearman"] == pytest.approx(-1.0) and swapped[
        "embedding_spearman_torch"
    ] == pytest.approx(1.0)
    assert swapped["embedding_rank_agreement"] < 1 and swapped["embedding_cosine"] < 1


def test_an_overflow_is_told_and_a_wrong_shape_too(monkeypatch, tmp_path):
    _, folder = read(tmp_path, "tale", SHIPPED / "texts" / "tales.txt", "agreement", rows=2, stride=12)
    with pytest.raises(StageError, match="that are NaN or infinite"):
        evaluated(monkeypatch, tmp_path, folder, "agreement", "causal_lm", lambda *_: np.full((1, 24, 1024), np.nan))
    with pytest.raises(StageError, match=r"has shape \(1, 1, 1024\), the reference \(1, 24, 1024\)"):
        evaluated(monkeypatch, tmp_path, folder, "agreement", "causal_lm", lambda *_: np.zeros((1, 1, 1024)))


def test_how_many_of_the_first_five_are_the_same():
    reference = np.array([[6.0, 5, 4, 3, 2, 1, 0]])
    found = agreement.same_among(5, reference=reference, candidate=np.array([[0.0, 5, 6, 3, 2, 4, 1]]))
    assert found.tolist() == [0.8] and agreement.same_among(9, reference=reference, candidate=-reference).tolist() == [
        1.0
    ]


def test_the_language_model_that_ships_has_learned_and_is_small(hf):
    model, tokenizer = hf
    ids = tokenizer((SHIPPED / "texts" / "tales.txt").read_text()).input_ids
    shares = np.bincount(ids) / len(ids)
    unigram = math.exp(-sum(share * math.log(share) for share in shares if share))
    text = (SHIPPED / "texts" / "tales.txt").read_text()[:4000]
    assert huggingfaces(model, tokenizer, text, 128, 64) < 2.2 and unigram > 100
    assert sum(path.stat().st_size for path in TALE.iterdir()) < 3e6
    assert Path(ane_sweep.__file__).parent in TALE.parents


@pytest.mark.slow
def test_norms_whose_sums_are_of_fp16_ruin_the_language_model_and_means_in_fp32_heal_it(tmp_path):
    """What others saw of GPT-2 on the Neural Engine: accuracy is gone without the norms' means in fp32."""
    from ane_sweep.worker.stages import convert

    _, folder = read(tmp_path, "tale", SHIPPED / "texts" / "tales.txt", "perplexity", rows=4, seq_len=48, stride=24)
    model = {"family": "gpt2", "task": "causal_lm", "arch": arch(TALE)}
    built = {"model": model, "seq_len": 48, "weights": {"kind": "pretrained", "digest": "its", "allow_pickle": False}}
    found = {}
    for norm in ("fp16", "fp16_ops", "fp32_mean"):
        program, out = tmp_path / norm, tmp_path / f"{norm}.out"
        program.mkdir()
        out.mkdir()
        made = built | {"variant": "split_einsum", "target": "iOS17", "compute": "fp16", "options": {"norm": norm}}
        convert.run(made, {"checkpoint": TALE}, program)
        params = {
            "model": model,
            "score": "perplexity",
            "runtime": "reference",
            "numerics": "ane",
            "effects": ["narrow_sums"],
        }
        said = evaluate.run(params, {"program": program, "examples": folder}, out).metrics
        found[norm] = {one.name: one.value for one in said}
    torchs = found["fp16"]["perplexity_torch"]
    assert found["fp16_ops"]["perplexity"] > 20 * torchs and found["fp16_ops"]["task_top1_agreement"] < 0.5
    for norm in ("fp16", "fp32_mean"):
        assert found[norm]["perplexity"] == pytest.approx(torchs, rel=0.01), norm
        assert found[norm]["task_top1_agreement"] > 0.9, norm

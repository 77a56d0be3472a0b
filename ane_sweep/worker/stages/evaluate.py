"""evaluate: compares a runtime's answers on a file with those of fp32 torch and with the file's labels.

params  model, score, runtime, and what that runtime needs
inputs  program (or checkpoint), examples, reference
leaves  rows.jsonl: for each input the runtime's choice, torch's and the file's label (classifiers)

`perplexity` is exp of the mean negative log-likelihood of the scored tokens. Divergences are those of the model's
probabilities from torch's; top1 counts equal first choices, top5 the share of the first five that both have. For
vectors: the mean cosine to torch's, and Spearman's correlation of the similarities of all pairs of texts; also the
correlation with the grades, if the file grades its pairs.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.stats.ranks import spearman
from ane_sweep.worker import params, runtimes
from ane_sweep.worker.feeds import agreement
from ane_sweep.worker.feeds.arrays import Inputs, map_arrays
from ane_sweep.worker.params import Model
from ane_sweep.worker.runtimes._runtime import Arrays
from ane_sweep.worker.stages import StageResult
from ane_sweep.worker.stages.score import check_output

STAGE = Stage(
    order=112, many="scores", timeout_s=3600, base_gib=0.28, per_byte=1.3, base_s=1, per_gb_s=0.3, runs_program=True,
    limited=False,
)  # fmt: skip

TOP = 5
Place = int | np.ndarray


class Params(params.RuntimeParams, frozen=True, kw_only=True):
    """Parameters of this stage; the runtime reads more of the same JSON."""

    model: Model
    score: str


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Score the answers. Raises StageError if an output is missing, has another shape or is not finite."""
    settings = Params.read(params)
    feeds, expected = Inputs(inputs["examples"]), map_arrays(inputs["examples"] / "outputs.npz")
    with np.load(inputs["examples"] / "wanted.npz") as arrays:
        answers = dict(arrays)
    ((name, torchs),) = expected.items()
    scores = _SCORES[KINDS[settings.model.task].leaves](answers)
    runtime = runtimes.load(params, inputs)
    place = 0
    for index, outputs in enumerate(runtime.predict_each(feeds)):
        scored = answers["scored"][index] if "scored" in answers else None
        shape = (1, len(scored), torchs.shape[1]) if scored is not None else torchs[index].shape
        got = check_output(name, outputs, shape, index)
        if scored is None:
            scores.add(torchs[index], got, feeds.valid[index])
        else:
            count = int(scored.sum())
            scores.add(torchs[place : place + count], got[0][scored], place)
            place += count
    if lines := scores.lines():
        (out / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    metrics = [*scores.metrics(settings.score), Metric("score_rows", len(feeds), "1")]
    metrics = [replace(metric, source=settings.runtime) for metric in metrics]
    if bad := [metric.name for metric in metrics if not math.isfinite(metric.value or 0)]:
        raise StageError(f"{bad[0]} is beyond all numbers: the model is sure of what does not follow")
    return StageResult(metrics=metrics, realised=dict(runtime.realised))


class _Scores(Protocol):
    """Running figures for one kind of model. `place` is the first scored token, or the positions that hold text."""

    def add(self, torchs: np.ndarray, got: np.ndarray, place: Place) -> None: ...
    def metrics(self, score: str) -> list[Metric]: ...
    def lines(self) -> list[dict[str, int]]:
        return []


class _Tokens(_Scores):
    """Running figures of scored positions in running text, (rows, vocabulary) at a time."""

    def __init__(self, answers: Arrays):
        self.target = answers["target"]
        self.sums = {"own": 0.0, "torch": 0.0, "kl": 0.0, "top1": 0.0, "top5": 0.0}

    def add(self, torchs: np.ndarray, got: np.ndarray, place: Place) -> None:
        first = int(place)
        rows, target = np.arange(len(got)), self.target[first : first + len(got)]
        added = {
            "own": -agreement.log_softmax(got)[rows, target],
            "torch": -agreement.log_softmax(torchs)[rows, target],
            "kl": agreement.kl_rows(reference=torchs, candidate=got),
            "top1": agreement.same_top1(reference=torchs, candidate=got),
            "top5": agreement.same_among(TOP, reference=torchs, candidate=got),
        }
        for name, values in added.items():
            self.sums[name] += float(values.sum())

    def metrics(self, score: str) -> list[Metric]:
        mean = {name: value / len(self.target) for name, value in self.sums.items()}
        metrics = [
            Metric("task_top1_agreement", mean["top1"], "1"), Metric("task_top5_agreement", mean["top5"], "1"),
            Metric("task_kl", mean["kl"], "nat"), Metric("score_positions", len(self.target), "1"),
        ]  # fmt: skip
        if score == "perplexity":
            metrics[:0] = [
                Metric("perplexity", _exp(mean["own"]), "1"),
                Metric("perplexity_torch", _exp(mean["torch"]), "1"),
            ]
        return metrics


class _Labels(_Scores):
    """Running figures of a classifier's logits, one input at a time."""

    def __init__(self, answers: Arrays):
        self.label = answers.get("label")
        self.torchs: list[np.ndarray] = []
        self.got: list[np.ndarray] = []

    def add(self, torchs: np.ndarray, got: np.ndarray, place: Place) -> None:
        self.torchs.append(torchs.reshape(-1))
        self.got.append(got.reshape(-1))

    def metrics(self, score: str) -> list[Metric]:
        torchs, got = np.stack(self.torchs), np.stack(self.got)
        metrics = [
            Metric("label_agreement", float(agreement.same_top1(reference=torchs, candidate=got).mean()), "1"),
            Metric("task_kl", float(agreement.kl_rows(reference=torchs, candidate=got).mean()), "nat"),
        ]
        if score == "accuracy" and self.label is not None:
            own, theirs = (float((logits.argmax(-1) == self.label).mean()) for logits in (got, torchs))
            metrics[:0] = [Metric("accuracy", own, "1"), Metric("accuracy_torch", theirs, "1")]
        return metrics

    def lines(self) -> list[dict[str, int]]:
        labels: list[dict[str, int]] = [{}] * len(self.got)
        if self.label is not None:
            labels = [{"label": int(label)} for label in self.label]
        return [
            {"row": n, "chosen": int(got.argmax()), "torch": int(torchs.argmax()), **label}
            for n, (got, torchs, label) in enumerate(zip(self.got, self.torchs, labels))
        ]


class _Vectors(_Scores):
    """Running figures of one vector per text: the mean over an encoder's positions, or its only vector."""

    def __init__(self, answers: Arrays):
        self.pair, self.grade = answers.get("pair"), answers.get("grade")
        self.torchs: list[np.ndarray] = []
        self.got: list[np.ndarray] = []

    def add(self, torchs: np.ndarray, got: np.ndarray, place: Place) -> None:
        valid = np.asarray(place)
        for vectors, plane in ((self.torchs, torchs), (self.got, got)):
            rows = valid if plane.ndim == 3 and plane.shape[1] == len(valid) else slice(None)
            vectors.append(agreement.mean_pool(plane[0] if plane.ndim == 3 else plane, rows))

    def metrics(self, score: str) -> list[Metric]:
        torchs, got = np.stack(self.torchs), np.stack(self.got)
        metrics = [
            Metric("embedding_rank_agreement", agreement.rank_agreement(reference=torchs, candidate=got), "1"),
            Metric("embedding_cosine", float(np.mean([agreement.cosine(a, b) for a, b in zip(torchs, got)])), "1"),
        ]
        if self.pair is not None and self.grade is not None and len(self.grade) > 1:
            for name, vectors in (("embedding_spearman", got), ("embedding_spearman_torch", torchs)):
                alike = np.array([agreement.cosine(vectors[a], vectors[b]) for a, b in self.pair])
                metrics.append(Metric(name, spearman(self.grade, alike), "1"))
        return metrics


_SCORES: dict[str, type[_Tokens] | type[_Labels] | type[_Vectors]] = {
    "tokens": _Tokens, "labels": _Labels, "vectors": _Vectors,
}  # fmt: skip


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf

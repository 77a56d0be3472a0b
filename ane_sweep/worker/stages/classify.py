"""classify: a classifier that is talked to, for as long as somebody asks. Asked for by the verb, never part of a cell's plan.

params  as of `generate`
asked   {texts, count, idle_s}: with a count, the texts are predicted in a tight loop, over and over until there are as many
says    ready {load_ms, tokenizer, realised, labels}; of each text label {text number, label, probability, probabilities,
        tokens, cut, tokenizer_ms, model_ms}; after a loop timing {...} (see _loop)
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ane_sweep.bridge import model_tasks
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.worker.stages import StageResult

if TYPE_CHECKING:
    import numpy as np

STAGE = Stage(
    order=170, many="classifications", timeout_s=3600, base_gib=0.8, per_byte=1.3, stored=False, planned=False,
    runs_program=True,
)  # fmt: skip


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """See the module's docstring. Raises Unavailable where this host has no such runtime, ConfigError without a tokenizer."""
    from ane_sweep.worker.talk.channel import Channel

    channel = Channel(params["channel"])
    classifier = channel.open(lambda: Classifier(params, inputs))
    channel.send("ready", load_ms=classifier.load_ms, tokenizer=classifier.said, realised=dict(classifier.realised))

    def answer(asked: dict[str, Any]) -> None:
        rows = [classifier.row(text) for text in asked["texts"]]
        if asked["count"]:
            made, timing = classifier.loop(rows, asked["count"], asked["idle_s"])
        else:
            made, timing = [classifier.predict(row) for row in rows], None
        for number, (row, (logits, model_ms)) in enumerate(zip(rows, made)):
            channel.send("label", number=number, **row.told, model_ms=model_ms, **classifier.labelled(logits))
        if timing:
            channel.send("timing", **timing)

    channel.serve(answer)
    return StageResult(realised=dict(classifier.realised))


class Row:
    """A text as the program takes it, prepared before any clock of the program's starts; `told`: what is said of it."""

    def __init__(self, feed: dict[str, Any], count: int, cut: bool, tokenizer_ms: float):
        self.feed = feed
        self.told = {"tokens": count, "cut": cut, "tokenizer_ms": tokenizer_ms}


class Classifier:
    def __init__(self, params: dict[str, Any], inputs: dict[str, Path]):
        from ane_sweep.worker import runtimes
        from ane_sweep.worker.talk import programs, tokens

        programs.check_runtime(params["runtime"])
        self.params, self.model = params, params["model"]
        self.tokenizer, self.said = tokens.load_tokenizer(params, inputs)
        self.feeds = programs.GraphInputs(params, inputs)
        began = time.perf_counter()
        self.runtime = runtimes.load(params, inputs)
        self.load_ms = 1000 * (time.perf_counter() - began)
        self.realised = self.runtime.realised
        self.names = programs.load_config(self.model).id2label

    def row(self, text: str) -> Row:
        """Raises ConfigError for a text of no token. One that is too long is cut, which is said."""
        from ane_sweep.worker.talk import tokens

        vocabulary = model_tasks.vocabulary(self.model["task"], self.model["arch"])
        began, seq_len = time.perf_counter(), self.params["seq_len"]
        whole = tokens.encode(self.tokenizer, text, vocabulary)
        # the tokenizer cuts, as it keeps the closing special token
        ids = whole if len(whole) <= seq_len else self.tokenizer(text, truncation=True, max_length=seq_len)["input_ids"]
        fed = self.feeds(ids)
        tokenizer_ms = 1000 * (time.perf_counter() - began)
        return Row(self.runtime.prepare(fed), len(whole), len(whole) > seq_len, tokenizer_ms)

    def predict(self, row: Row) -> "tuple[np.ndarray, float]":
        """(logits, ms)."""
        began = time.perf_counter()
        made = self.runtime.predict(row.feed)
        return made["logits"], 1000 * (time.perf_counter() - began)

    def labelled(self, logits: "np.ndarray") -> dict[str, Any]:
        """The likeliest label, and each one's probability. Raises StageError for what is no choice between classes."""
        from scipy.special import softmax

        from ane_sweep.worker.talk.programs import check_finite

        row = check_finite(logits.reshape(-1))
        if row.size < 2:
            raise StageError("the model gives one number and no classes to choose between")
        shares = softmax(row.astype("float64")).tolist()
        names = [str(self.names.get(number, f"LABEL_{number}")) for number in range(row.size)]
        best = max(range(row.size), key=shares.__getitem__)
        return {"label": names[best], "probability": shares[best], "probabilities": dict(zip(names, shares))}

    def loop(
        self, rows: list[Row], count: int, idle_s: float
    ) -> "tuple[list[tuple[np.ndarray, float]], dict[str, Any]]":
        """`count` predictions one after the other, the rows in turn: (what came of each row, milliseconds).

        timing   first_ms: the very first; median_ms, p90_ms of the loop; total_s; per_s; after_idle_ms: one more after a
                 pause of idle_s (null without a pause); tokenizer_median_ms; count, distinct, warmup
        """
        from ane_sweep.stats.samples import quantile
        from ane_sweep.worker.stages.throughput import WARMUP, time_predictions

        first_ms = self.predict(rows[0])[1]
        made: list[tuple[Any, float]] = []
        total_s = time_predictions(lambda row: made.append(self.predict(row)), rows, count, time.perf_counter)
        looped = made[WARMUP:]
        after_idle_ms = None
        if idle_s:
            time.sleep(idle_s)
            after_idle_ms = self.predict(rows[0])[1]
        taken = [ms for _, ms in looped]
        told = [row.told["tokenizer_ms"] for row in rows]
        return looped[: len(rows)], {
            "count": count, "distinct": len(rows), "warmup": WARMUP, "first_ms": first_ms, "median_ms": quantile(taken, 0.5),
            "p90_ms": quantile(taken, 0.9), "total_s": total_s, "per_s": count / total_s, "idle_s": idle_s,
            "after_idle_ms": after_idle_ms, "tokenizer_median_ms": quantile(told, 0.5),
        }  # fmt: skip

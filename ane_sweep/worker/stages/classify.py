"""classify: a classifier that answers requests until its session ends. A verb starts it; cells do not use it.

params   those of `generate`
request  {texts, count, idle_s}: with a count, the texts are predicted in turn in a tight loop, `count` predictions in
         all
answers  ready {load_ms, tokenizer, realised, labels}; for each text label {text number, label, probability,
         probabilities, tokens, cut, tokenizer_ms, model_ms}; after a loop timing {...} (see `loop`)
"""

import time
from pathlib import Path

import msgspec
import numpy as np

from ane_sweep.bridge.kinds import KINDS
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.stats.samples import quantile
from ane_sweep.worker import params, runtimes
from ane_sweep.worker.params import Model
from ane_sweep.worker.stages import StageResult
from ane_sweep.worker.stages.throughput import WARMUP, time_predictions
from ane_sweep.worker.talk import programs, tokens
from ane_sweep.worker.talk.channel import Channel

STAGE = Stage(
    order=170, many="classifications", timeout_s=3600, base_gib=0.8, per_byte=1.3, stored=False, planned=False,
    runs_program=True,
)  # fmt: skip


class Params(params.RuntimeParams, frozen=True, kw_only=True):
    """Parameters of this stage; the runtime and the session's modules read more of the same JSON."""

    channel: int
    model: Model
    seq_len: int


class Request(params.Params, frozen=True):
    """One request: texts, the number of predictions of a loop (0: none), and the pause after it in seconds."""

    texts: list[str]
    count: int
    idle_s: float


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Answer requests. Raises Unavailable if this host lacks the runtime, ConfigError without a tokenizer."""
    channel = Channel(Params.read(params).channel)
    classifier = channel.open(lambda: Classifier(params, inputs))
    channel.send("ready", load_ms=classifier.load_ms, tokenizer=classifier.source, realised=dict(classifier.realised))

    def answer(values: dict[str, object]) -> None:
        request = Request.read(values)
        rows = [classifier.prepare(text) for text in request.texts]
        if request.count:
            made, timing = classifier.loop(rows, request.count, request.idle_s)
        else:
            made, timing = [classifier.predict(row) for row in rows], None
        for number, (row, (logits, model_ms)) in enumerate(zip(rows, made)):
            channel.send("label", number=number, **row.figures, model_ms=model_ms, **classifier.describe(logits))
        if timing:
            channel.send("timing", **timing)

    channel.serve(answer)
    return StageResult(realised=dict(classifier.realised))


class PreparedText:
    """A text converted to the program's inputs before the clock starts, with its figures for the answer."""

    def __init__(self, feed: dict[str, np.ndarray], count: int, cut: bool, tokenizer_ms: float):
        self.feed, self.tokenizer_ms = feed, tokenizer_ms
        self.figures: dict[str, float] = {"tokens": count, "cut": cut, "tokenizer_ms": tokenizer_ms}


class Classifier:
    """A loaded classifier with its tokenizer. `source` describes the tokenizer for people."""

    def __init__(self, params: dict[str, object], inputs: dict[str, Path]):
        self.params = Params.read(params)
        runtimes.check_available(self.params.runtime)
        self.tokenizer, self.source = tokens.load_tokenizer(params, inputs)
        self.feeds = programs.GraphInputs(params, inputs)
        began = time.perf_counter()
        self.runtime = runtimes.load(params, inputs)
        self.load_ms = 1000 * (time.perf_counter() - began)
        self.realised = self.runtime.realised
        self.names = programs.load_config(msgspec.to_builtins(self.params.model)).id2label

    def prepare(self, text: str) -> PreparedText:
        """Convert a text to inputs; a text that is too long is cut. Raises ConfigError for a text without tokens."""
        model, seq_len = self.params.model, self.params.seq_len
        vocabulary = KINDS[model.task].count_ids(model.arch)
        began = time.perf_counter()
        all_ids = tokens.encode(self.tokenizer, text, vocabulary)
        # the tokenizer cuts, because it keeps the closing special token
        cut = len(all_ids) > seq_len
        ids = self.tokenizer(text, truncation=True, max_length=seq_len)["input_ids"] if cut else all_ids
        feed = self.feeds(ids)
        tokenizer_ms = 1000 * (time.perf_counter() - began)
        return PreparedText(self.runtime.prepare(feed), len(all_ids), cut, tokenizer_ms)

    def predict(self, row: PreparedText) -> tuple[np.ndarray, float]:
        """Return the logits of a text and the milliseconds of the prediction."""
        began = time.perf_counter()
        made = self.runtime.predict(row.feed)
        return made["logits"], 1000 * (time.perf_counter() - began)

    def describe(self, logits: np.ndarray) -> dict[str, object]:
        """Return the likeliest label and the probability of each. Raises StageError if there is only one number."""
        from scipy.special import softmax

        row = programs.check_finite(logits.reshape(-1))
        if row.size < 2:
            raise StageError("the model gives one number and no classes to choose between")
        shares = softmax(row.astype("float64")).tolist()
        names = [str(self.names.get(number, f"LABEL_{number}")) for number in range(row.size)]
        best = max(range(row.size), key=shares.__getitem__)
        return {"label": names[best], "probability": shares[best], "probabilities": dict(zip(names, shares))}

    def loop(
        self, rows: list[PreparedText], count: int, idle_s: float
    ) -> tuple[list[tuple[np.ndarray, float]], dict[str, float | None]]:
        """Predict `count` times in a row, the texts in turn; return logits and milliseconds of each text, and the timing.

        timing   first_ms: the first prediction; median_ms, p90_ms of the loop; total_s; per_s; after_idle_ms: one
                 further prediction after a pause of idle_s (null without a pause); tokenizer_median_ms; count,
                 distinct, warmup
        """
        first_ms = self.predict(rows[0])[1]
        made: list[tuple[np.ndarray, float]] = []
        total_s = time_predictions(lambda row: made.append(self.predict(row)), rows, count, time.perf_counter)
        looped = made[WARMUP:]
        after_idle_ms = None
        if idle_s:
            time.sleep(idle_s)
            after_idle_ms = self.predict(rows[0])[1]
        taken = [ms for _, ms in looped]
        tokenizer_ms = [row.tokenizer_ms for row in rows]
        return looped[: len(rows)], {
            "count": count, "distinct": len(rows), "warmup": WARMUP, "first_ms": first_ms, "median_ms": quantile(taken, 0.5),
            "p90_ms": quantile(taken, 0.9), "total_s": total_s, "per_s": count / total_s, "idle_s": idle_s,
            "after_idle_ms": after_idle_ms, "tokenizer_median_ms": quantile(tokenizer_ms, 0.5),
        }  # fmt: skip

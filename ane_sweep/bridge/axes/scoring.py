"""The axes of a score on the model's own task, over a file of examples (examples.py; stages examples and evaluate)."""

from dataclasses import dataclass
from functools import partial

from ane_sweep.bridge.axes import Asked, Only, axis
from ane_sweep.bridge.examples import SCORES
from ane_sweep.bridge.kinds import KINDS

_axis = partial(axis, shapes=("examples", "evaluate"))
_OF = {
    "perplexity": "a language model's tokens",
    "accuracy": "a classifier's labels",
    "agreement": "what is chosen among tokens or labels",
    "embedding": "a text's vector",
}


def _fits(asked: Asked) -> str | None:
    score, task, model = (asked[name] for name in ("score", "task", "model"))
    if score == "none":
        return None
    kind = KINDS[task]
    if score not in kind.scores:
        ways = " or ".join(f"score={name}" for name in (*kind.scores, "none"))
        return f"score={score} is of {_OF[score]}, and {model} is of task {task}; use {ways}"
    if kind.reads == "windows" and asked["head"] == "last":
        return f"score={score} reads the logits of every position, and head=last gives those of one; use head=all"
    return None


def _stride(asked: Asked) -> str | None:
    stride, seq_len = asked["score_stride"], asked["seq_len"]
    if stride is None or asked["score"] == "none":
        return None
    if KINDS[asked["task"]].reads != "windows":
        return f"score_stride={stride}: windows slide over running text, and score={asked['score']} reads examples; leave it out"
    return f"score_stride={stride} is more than the {seq_len} tokens of a window" if stride > seq_len else None


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The axes of scoring; they are part of the keys of the scoring stages alone."""

    score: str = _axis(
        "a task that the cell is scored on over a file: perplexity of a text; accuracy on labels; agreement with fp32 torch; "
        "likeness of embeddings",
        choices=("none", *SCORES),
        plain="none",
        refuses=_fits,
    )
    score_data: str | None = _axis(
        "that file: a path, or ORG/NAME:FILE of a dataset on the hub; null: a small one that ships",
        plain=None,
        only=(
            Only(
                "score", SCORES, "score_data={value} is read for a score, and score=none asks for none; add score=..."
            ),
        ),
    )
    score_rows: int | None = _axis(
        "at most so many of its lines, or windows of its text; null: 32 windows, 128 pairs or 256 lines",
        least=1,
        most=10**6,
        why="each is a forward pass in fp32",
        plain=None,
    )
    score_stride: int | None = _axis(
        "perplexity: tokens that the window moves on; null: half of seq_len",
        least=1,
        most=2**20,
        why="no window is longer",
        plain=None,
        refuses=_stride,
    )

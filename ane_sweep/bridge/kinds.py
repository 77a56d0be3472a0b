"""The kinds of models, by the word `task` of a model's option. Standard library only, for planner and worker.

To add a kind, add a row to KINDS: code reads a row's attributes and never compares the word.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Kind:
    """The rules for all models of one task.

    length   the source of an input's length: the axis seq_len, the architecture, or the caller's own module
    reads    the form of text inputs: "windows" of running text, or "sentences"; "" if inputs are not text
    leaves   the meaning of outputs: logits of "tokens" or "labels", "vectors" to compare by similarity, "noise" of a
             picture, or "values" of unknown meaning
    texts    default number of inputs on which a model is compared
    does     the end of the sentence `model=NAME ...` in the message of a verb that cannot use such a model
    talks    the verb for an interactive session with such a model, or ""; `example` is the model that this verb
             proposes in place of other kinds
    scores   values of the axis `score` that fit; `sample` is the file in data/texts/ that ships for them
    causal   it has a causal mask and one head, and can keep a cache between calls
    pair     it is an encoder and a decoder, each with its own blocks and lookup
    blocks   "one list" of equal blocks, "several" lists, or "none" that are built here
    part     the key of config.json that holds the vocabulary; `vocabulary` is its size if config.json leaves it out
    """

    length: Literal["seq_len", "architecture", "caller"]
    reads: Literal["windows", "sentences", ""]
    leaves: Literal["tokens", "labels", "vectors", "noise", "values"]
    texts: int
    does: str = "gives numbers of unknown meaning"
    talks: str = ""
    example: str = ""
    scores: tuple[str, ...] = ()
    sample: str | None = None
    causal: bool = False
    pair: bool = False
    blocks: Literal["one list", "several", "none"] = "one list"
    part: str | None = None
    vocabulary: int = 0

    def count_ids(self, arch: Mapping[str, object]) -> int:
        """Return how many distinct token ids inputs may hold, for Whisper its decoder's; 0 without token inputs."""
        if not self.reads:
            return 0
        own = arch.get(self.part, {}) if self.part else arch
        size = own.get("vocab_size", self.vocabulary) if isinstance(own, Mapping) else self.vocabulary
        return size if isinstance(size, int) else 0


KINDS = {
    "causal_lm": Kind(
        "seq_len", "windows", "tokens", 2, "writes text: ane-sweep generate", "generate", "a decoder (model=gpt2)",
        ("perplexity", "agreement"), "tales.txt", causal=True,
    ),
    "encoder": Kind(
        "seq_len", "sentences", "vectors", 16, "leaves embeddings of texts", scores=("embedding",), sample="pairs.tsv"
    ),
    "classifier": Kind(
        "seq_len", "sentences", "labels", 16, "classifies texts: ane-sweep classify", "classify",
        "a classifier of texts (model=distilbert)", ("accuracy", "agreement"), "moods.tsv",
    ),
    "seq2seq": Kind(
        "seq_len", "sentences", "tokens", 2, "writes text: ane-sweep generate", "generate", pair=True, blocks="several"
    ),
    "image_classifier": Kind("architecture", "", "labels", 8, "takes pictures"),
    "image_encoder": Kind("architecture", "", "vectors", 8, "takes pictures"),
    "audio_encoder": Kind("architecture", "", "vectors", 8, "takes sound"),
    "text_encoder": Kind(
        "architecture", "sentences", "vectors", 8, "leaves embeddings of texts", scores=("embedding",),
        sample="pairs.tsv", part="text_config", vocabulary=49_408,  # CLIP's
    ),
    "denoiser": Kind("architecture", "", "noise", 8, blocks="several"),
    "features": Kind("seq_len", "", "values", 2, blocks="none"),
    "tensors": Kind("caller", "", "values", 16, blocks="none"),
}  # fmt: skip


def tasks_with(fits: Callable[[Kind], bool]) -> tuple[str, ...]:
    """Return the tasks whose kind satisfies the predicate `fits`."""
    return tuple(task for task, kind in KINDS.items() if fits(kind))

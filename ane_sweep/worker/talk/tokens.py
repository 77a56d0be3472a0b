"""The tokenizer of a session's model: the checkpoint's own, one from a folder, or bytes for random weights."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ane_sweep.bridge.kinds import KINDS
from ane_sweep.errors import ConfigError, StageError
from ane_sweep.worker.feeds import tokens

BYTES = 256


def load_tokenizer(params: dict[str, Any], inputs: dict[str, Path]) -> tuple[PreTrainedTokenizerFast, str]:
    """Return a tokenizer of transformers and its description. Raises ConfigError if it is missing or unreadable."""
    model = params["model"]
    vocabulary = KINDS[model["task"]].count_ids(model["arch"])
    if params["tokenizer"] is not None:
        made, label = _read_tokenizer(Path(params["tokenizer"])), params["tokenizer"]
    elif params["weights"]["kind"] == "random":
        made = make_byte_tokenizer(vocabulary)
        label = "bytes (random weights have no tokenizer: their text means nothing)"
    else:
        made, label = _read_tokenizer(inputs["checkpoint"]), "the checkpoint's"
    made.no_truncation()
    made.no_padding()
    return PreTrainedTokenizerFast(tokenizer_object=made), label


def _read_tokenizer(folder: Path) -> Tokenizer:
    try:
        tokenizer = tokens.find_tokenizer(folder)
    except StageError as error:
        raise ConfigError(str(error)) from error
    if tokenizer is None:
        raise ConfigError(f"{folder} has no tokenizer any more")
    return tokenizer


def make_byte_tokenizer(vocabulary: int) -> Tokenizer:
    """Return a tokenizer with one token per byte. Higher ids, which random weights also produce, are written as <id>."""
    if vocabulary < BYTES:
        raise ConfigError(
            f"random weights have no tokenizer, and a vocabulary of {vocabulary} ids has no room for the {BYTES} bytes; "
            "tokenizer=FOLDER gives one"
        )
    known = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    beyond = {f"\u0120<{number}>": number for number in range(BYTES, vocabulary)}  # \u0120: a space, of this alphabet
    made = Tokenizer(models.BPE(vocab=known | beyond, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return made


def encode(tokenizer: PreTrainedTokenizerFast, text: str, vocabulary: int) -> list[int]:
    """Return the token ids of a text. Raises ConfigError for a text without tokens, and for ids outside the vocabulary."""
    ids: list[int] = tokenizer(text)["input_ids"]
    if not ids:
        raise ConfigError("the text is empty: the tokenizer makes no token of it")
    if max(ids) >= vocabulary:
        raise ConfigError(
            f"the tokenizer gives id {max(ids)}, but the model's vocabulary has {vocabulary} entries: tokenizer and model do "
            "not belong together; tokenizer=FOLDER gives another"
        )
    return ids

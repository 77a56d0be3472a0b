"""The tokenizer of whom is talked to: the checkpoint's own, one that was given, or bytes where weights are random."""

from pathlib import Path
from typing import Any

from ane_sweep.bridge import model_tasks
from ane_sweep.errors import ConfigError, StageError
from ane_sweep.worker.feeds import tokens

BYTES = 256


def find(params: dict[str, Any], inputs: dict[str, Path]) -> tuple[Any, str]:
    """(a tokenizer of transformers, what it is). Raises ConfigError where there is none, or none that can be read."""
    from transformers import PreTrainedTokenizerFast

    model = params["model"]
    vocabulary = model_tasks.vocabulary(model["task"], model["arch"])
    if params["tokenizer"] is not None:
        made, said = _read(Path(params["tokenizer"])), params["tokenizer"]
    elif params["weights"]["kind"] == "random":
        made, said = byte_level(vocabulary), "bytes (random weights have no tokenizer: their text means nothing)"
    else:
        made, said = _read(inputs["checkpoint"]), "the checkpoint's"
    made.no_truncation()
    made.no_padding()
    return PreTrainedTokenizerFast(tokenizer_object=made), said


def _read(folder: Path) -> Any:
    try:
        found = tokens.find_tokenizer(folder)
    except StageError as error:
        raise ConfigError(str(error)) from error
    if found is None:
        raise ConfigError(f"{folder} has no tokenizer any more")
    return found


def byte_level(vocabulary: int) -> Any:
    """A token a byte. Ids beyond, which a model of random weights makes as well, are written as <id>."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

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


def encode(tokenizer: Any, text: str, vocabulary: int) -> list[int]:
    """Ids of a text. Raises ConfigError for a text of none, and for ids that the model does not have."""
    ids: list[int] = tokenizer(text)["input_ids"]
    if not ids:
        raise ConfigError("the text is empty: no token comes of it")
    if max(ids) >= vocabulary:
        raise ConfigError(
            f"the tokenizer gives id {max(ids)}, but the model's vocabulary has {vocabulary} entries: tokenizer and model do "
            "not belong together; tokenizer=FOLDER gives another"
        )
    return ids

"""The inputs of a model by its task. Standard library only, for planner and worker."""

from collections.abc import Mapping
from typing import Any

SENTENCES = ("encoder", "classifier", "seq2seq")  # scored on whole sentences
TEXTS = ("causal_lm", *SENTENCES)  # take `seq_len` tokens
# Take inputs of one size, which the architecture says, whatever `seq_len` is.
ONE_SIZE = ("image_classifier", "image_encoder", "audio_encoder", "text_encoder", "denoiser")
EMBED = ("encoder", "image_encoder", "audio_encoder", "text_encoder")  # leave vectors, which are compared by similarity
NO_TEXT = ("features", "tensors")  # plain layers; a model that was given, of whose outputs nothing is known
TASKS = (*TEXTS, *ONE_SIZE, *NO_TEXT)

_CLIP_VOCABULARY = 49_408  # where a config.json leaves it out, it is this


def vocabulary(task: str, arch: Mapping[str, Any]) -> int:
    """Return the number of token ids that the inputs may hold; 0 for a model that takes none. (Whisper's are its decoder's.)"""
    if task == "text_encoder":
        return arch.get("text_config", {}).get("vocab_size", _CLIP_VOCABULARY)
    return arch.get("vocab_size", 0) if task in TEXTS else 0

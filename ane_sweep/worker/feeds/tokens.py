"""Token ids for a model: real text through its own tokenizer, or seeded ids if it has no tokenizer."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ane_sweep import data
from ane_sweep.errors import StageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def find_tokenizer(checkpoint: Path | None) -> "Tokenizer | None":
    """Return the checkpoint's tokenizers.Tokenizer, or None if it has none. Raises StageError if it is unreadable."""
    if checkpoint is None:
        return None
    path = checkpoint / "tokenizer.json"
    try:
        if path.exists():
            from tokenizers import Tokenizer

            return Tokenizer.from_file(str(path))
        slow = (checkpoint / "vocab.txt").exists() or (checkpoint / "merges.txt").exists()
        if not slow:
            return None
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(checkpoint), local_files_only=True).backend_tokenizer
    except Exception as error:
        raise StageError(
            f"the tokenizer in {checkpoint} cannot be read ({error}); fetch the checkpoint again"
        ) from error


def encode_sentences(
    tokenizer: "Tokenizer", count: int, seq_len: int, vocabulary: int, first: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Encode `count` sentences from the `first` on, cut or padded to seq_len -> ids (N,S) int32, valid (N,S) bool.

    After the last sentence it starts over.
    """
    texts = data.sentences()
    if count > len(texts):
        raise StageError(f"texts.count={count}, but there are {len(texts)} sentences; ask for at most that many")
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=seq_len)  # keeps the closing special token, unlike a plain cut
    rows = [tokenizer.encode(text).ids for text in (texts * 2)[first % len(texts) :][:count]]
    return _pad(rows, count, seq_len, _find_pad_id(tokenizer, ("[PAD]", "<pad>")), vocabulary)


def encode_windows(
    tokenizer: "Tokenizer", count: int, seq_len: int, vocabulary: int, full: bool = False, first: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Encode `count` successive windows of the passage from the `first` on -> ids (N,S) int32, valid (N,S) bool.

    The last is padded on the right; with `full`, a short window begins earlier instead, if the passage is long enough.
    """
    tokenizer.no_padding()
    tokenizer.no_truncation()
    ids = tokenizer.encode(data.passage(), add_special_tokens=False).ids
    # A window beyond the text's end starts over from its beginning, so that none is empty.
    starts = [(i * seq_len) if i * seq_len < len(ids) else 0 for i in range(first, first + count)]
    if full:
        starts = [max(0, min(start, len(ids) - seq_len)) for start in starts]
    rows = [ids[start : start + seq_len] for start in starts]
    return _pad(rows, count, seq_len, _find_pad_id(tokenizer, ("<|endoftext|>", "</s>")), vocabulary)


def draw_ids(count: int, seq_len: int, vocabulary: int, seed: int, full: bool) -> tuple[np.ndarray, np.ndarray]:
    """Draw seeded ids -> ids (N,S) int32, valid (N,S) bool; rows differ in length unless `full`."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, vocabulary, (count, seq_len), dtype=np.int32)
    lengths = np.full(count, seq_len) if full else random.integers((seq_len + 1) // 2, seq_len + 1, count)
    valid = np.arange(seq_len)[None] < lengths[:, None]
    return np.where(valid, ids, 0).astype(np.int32), valid


def pad_rows(
    tokenizer: "Tokenizer", rows: list[list[int]], seq_len: int, vocabulary: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pad rows of up to seq_len ids with the tokenizer's own padding -> ids (N,S) int32, valid (N,S) bool."""
    pad = _find_pad_id(tokenizer, ("[PAD]", "<pad>", "<|endoftext|>", "</s>"))
    return _pad(rows, len(rows), seq_len, pad, vocabulary)


def _find_pad_id(tokenizer: "Tokenizer", names: tuple[str, ...]) -> int:
    return next((i for i in (tokenizer.token_to_id(name) for name in names) if i is not None), 0)


def _pad(rows: list[list[int]], count: int, seq_len: int, pad: int, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.full((count, seq_len), pad, dtype=np.int32)
    valid = np.zeros((count, seq_len), dtype=bool)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        valid[index, : len(row)] = True
    if int(ids.max()) >= vocabulary:
        raise StageError(
            f"the tokenizer gives id {int(ids.max())}, but the model's vocabulary has {vocabulary} entries: "
            "tokenizer and model do not belong together"
        )
    return ids, valid

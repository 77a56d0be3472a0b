"""Text that models are scored on: our own prose, in English.

sentences.txt   32 sentences, one a line; each odd line and the next one have nearly the same meaning, so that a
                sentence's nearest neighbour is known
passage.txt     one story in paragraphs, for windows of running text
"""

import hashlib
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent


@cache
def sentences() -> list[str]:
    """Return the sentences, in pairs of similar meaning: 0 with 1, 2 with 3, and so on."""
    return (_HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()


def passage() -> str:
    """Return the story, with an empty line between paragraphs."""
    return (_HERE / "passage.txt").read_text(encoding="utf-8").strip()


@cache  # the planner asks once for every cell
def text_digest() -> str:
    """Return the sha256 (hex) of both texts, by which a reference task's key identifies its inputs."""
    digest = hashlib.sha256()
    for name in ("sentences.txt", "passage.txt"):
        digest.update(name.encode() + b"\0" + (_HERE / name).read_bytes() + b"\0")
    return digest.hexdigest()

"""A command in this process, with the streams that a process of its own would have."""

import codecs
import io
import sys
import time
from dataclasses import dataclass

from ane_sweep import terminal
from ane_sweep.__main__ import main


@dataclass
class Ended:
    code: int
    printed: str  # on standard output
    said: str  # on standard error
    seconds: float


def ended(words: list[str], monkeypatch) -> Ended:
    """Run a command; AssertionError with its words where it raises."""
    codecs.register_error("plain", terminal.plain)
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", "plain") for _ in range(2)]
    began = time.monotonic()
    with monkeypatch.context() as patch:
        for name, stream in zip(("stdout", "stderr"), streams):
            patch.setattr(sys, name, stream)
        try:
            code = main(words)
        except Exception as error:
            raise AssertionError(f"{words!r:.1000} raises {error!r:.1000}") from error
    for stream in streams:
        stream.flush()
    printed, said = (stream.buffer.getvalue().decode() for stream in streams)
    return Ended(code, printed, said, time.monotonic() - began)

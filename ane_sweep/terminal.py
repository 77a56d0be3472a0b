"""Standard output and error that never end a run: a reader that goes away and a full disk cost what was printed, no more;
a terminal that knows ASCII alone gets ASCII. Standard library only.
"""

import codecs
import errno
import io
import os
import select
import sys
from typing import Any

PLAIN = {"±": "+-", "━": "-", "…": "...", "→": "->", "≥": ">=", "≤": "<=", "×": "x", "–": "-", "—": "-"}


class Output(io.FileIO):
    """A descriptor that takes all that it is given. Its first trouble is kept as `trouble`; from then on it is dropped."""

    trouble: OSError | None = None

    def write(self, data: Any, /) -> int:
        left = memoryview(data).cast("B")
        while len(left) and self.trouble is None:
            try:
                written = super().write(left)
            except OSError as error:
                self.trouble = error
                break
            if written is None:  # somebody made the pipe non-blocking, and it is full
                select.select([], [self], [])
            left = left[written or 0 :]
        return len(data)


def settle() -> None:
    """Put both streams of this process on such descriptors. What was printed before is flushed first."""
    codecs.register_error("plain", plain)
    for number in (0, 1, 2):
        _open(number)
    sys.stdout = _stream(1, sys.stdout)
    sys.stderr = _stream(2, sys.stderr)


def plain(error: UnicodeError) -> tuple[str, int]:
    """The next best thing where an encoding lacks a character. A byte of a path that is no text becomes \\udcXX, which is
    also what JSON has for it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    return PLAIN.get(character) or character.encode("ascii", "backslashreplace").decode(), error.start + 1


def lost() -> str | None:
    """Flush standard output; why what was printed did not arrive, None where it did or nobody reads any more."""
    sys.stdout.flush()
    raw = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
    trouble = raw.trouble if isinstance(raw, Output) else None
    return None if trouble is None or trouble.errno == errno.EPIPE else trouble.strerror or str(trouble)


def _open(number: int) -> None:
    """A closed standard stream is /dev/null, else the next file that is opened takes its place and its output."""
    try:
        os.fstat(number)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)


def _stream(number: int, old: Any) -> io.TextIOWrapper:
    encoding, by_line, at_once = "utf-8", True, False
    if old is not None:  # None: it was closed
        old.flush()
        encoding, by_line, at_once = old.encoding, old.line_buffering, old.write_through
    raw = Output(number, "wb", closefd=False)
    buffer: Any = raw if at_once else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffer, encoding, "plain", line_buffering=by_line, write_through=at_once)

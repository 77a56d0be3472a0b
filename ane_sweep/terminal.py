"""Messages and exit codes of verbs, formats of durations and sizes, and standard streams that never end a run: with a
closed pipe or a full disk only the printed text is lost; a terminal that only shows ASCII gets ASCII.
"""

import codecs
import errno
import io
import math
import os
import select
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ane_sweep.outward import escape_controls, mask_credentials

OK, NOT_ALL_OK, BAD_CONFIGURATION, IN_DOUBT, INTERRUPTED = 0, 1, 2, 3, 130
EXIT_CODES = {  # one table for all verbs; those that only show end with 0 whatever they show
    OK: "all is well",
    NOT_ALL_OK: "something failed, or became worse",
    BAD_CONFIGURATION: "a wrong word, or a file or folder that cannot be used; nothing was run",
    IN_DOUBT: "it ran, but the answer is in doubt: degraded or skipped cells, or nothing could be tested",
    INTERRUPTED: "interrupted",
}
AGAIN = "interrupted; the same command goes on where it stopped"
KEPT = "interrupted; what was prepared is kept, and the same command begins with the text"
SWEEP_EXITS = EXIT_CODES | {
    OK: "every cell that could run is ok",
    NOT_ALL_OK: "a cell failed, or ran elsewhere than asked; a nightly: a regression",
    BAD_CONFIGURATION: "a wrong word, an unusable folder, or all cells refused; nothing was run",
    IN_DOUBT: "a cell is degraded or was skipped; a nightly: nothing could be compared",
    INTERRUPTED: AGAIN,
}

PLAIN = {"±": "+-", "━": "-", "…": "...", "→": "->", "≥": ">=", "≤": "<=", "×": "x", "–": "-", "—": "-"}


class Output(io.FileIO):
    """A stream whose writes never fail. It stores its first error as `trouble` and drops all later text."""

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


def protect_streams() -> None:
    """Put both output streams of this process on an `Output`. Earlier text is flushed first."""
    codecs.register_error("plain", plain)
    for number in (0, 1, 2):
        _open(number)
    sys.stdout = _stream(1, sys.stdout)
    sys.stderr = _stream(2, sys.stderr)


def plain(error: UnicodeError) -> tuple[str, int]:
    """Return a substitute for a character that the encoding lacks. A byte of a path that is no text becomes \\udcXX, which is
    also what JSON has for it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    return PLAIN.get(character) or character.encode("ascii", "backslashreplace").decode(), error.start + 1


def find_lost_output() -> str | None:
    """Flush standard output. Return why text was lost, or None if none was, or if the reader closed the pipe."""
    sys.stdout.flush()
    raw = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
    trouble = raw.trouble if isinstance(raw, Output) else None
    return None if trouble is None or trouble.errno == errno.EPIPE else trouble.strerror or str(trouble)


def _open(number: int) -> None:
    """Open a closed standard stream on /dev/null; else the next opened file would get its number and its output."""
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


def format_path(path: Path) -> str:
    """Return a path relative to the working folder, or in full if that folder is gone."""
    try:
        return os.path.relpath(path)
    except OSError:
        return str(path)


def tell(**content: object) -> None:
    """Print a result for scripts: one JSON object on standard output, in ASCII, so that it contains no terminal
    commands. Numbers that are not finite become null.
    """
    import json

    print(json.dumps(make_finite({"schema": 1, **content}), indent=1, allow_nan=False, default=str))


def print_result(as_json: bool, text: str, **content: object) -> int:
    """Print a verb's result, `content` as JSON or else `text`, and return the exit code of success."""
    tell(**content) if as_json else print(text)
    return OK


def make_finite(value: object, say: Callable[[str], str] = lambda text: text) -> object:
    """Return a JSON value with `say` applied to its texts, and null for numbers that are not finite."""
    if isinstance(value, str):
        return say(value)
    if isinstance(value, dict):
        return {str(name): make_finite(one, say) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [make_finite(one, say) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def asks_help(args: Sequence[str]) -> bool:
    return any(arg in ("--help", "-h") for arg in args)


def say(*lines: str) -> None:
    told = [escape_controls(mask_credentials(line)) for line in "\n".join(lines).split("\n")]
    if sys.stderr is not None and sys.stderr.isatty():  # a terminal breaks words where it ends
        told = [part for line in told for part in _folded(line)]
    print(*told, sep="\n", file=sys.stderr, flush=True)


def _folded(line: str) -> list[str]:
    from textwrap import wrap

    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return wrap(line, columns(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]


def duration(seconds: float | None) -> str:
    """Return seconds as `9 s`, `4 min`, `2 h 05 min`, or `unknown`."""
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def count(number: int, thing: str) -> str:
    """Return a number with its noun: `1 cell`, `4 cells`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def columns(otherwise: int = 160) -> int:
    """Return the width to print at: $COLUMNS, else the terminal's, else `otherwise` for a pipe."""
    return max(40, shutil.get_terminal_size((otherwise, 24)).columns)


def size(nbytes: float) -> str:
    """Return bytes as `45.3 MB`, `3.11 GB` (decimal units, as disks and Finder use)."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes:.0f} B"

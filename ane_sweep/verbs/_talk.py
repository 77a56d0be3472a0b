"""Shared parts of `generate` and `classify`: their words, the cells that answer, and the input of texts."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ane_sweep.errors import ConfigError
from ane_sweep.folders import user_path
from ane_sweep.machine import stand_in
from ane_sweep.outward import escape_controls
from ane_sweep.terminal import say
from ane_sweep.words import Parser

if TYPE_CHECKING:
    from ane_sweep.talk.cells import Partner

MOST_BYTES = 50_000_000  # of a file: it is read whole


def add_shared_words(parser: Parser, what: str) -> None:
    """Add the words that both verbs have."""
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="a run's name, or last, with :axis=value,... for one of its cells"
    )
    parser.matrix()
    parser.outputs()
    parser.key("file", "FILE", f"{what} of a UTF-8 file (default: standard input)", user_path)
    parser.key("tokenizer", "FOLDER", "another than the checkpoint's own: a folder with tokenizer.json", _tokenizer)


def _tokenizer(text: str) -> str:
    folder = user_path(text).absolute()
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt", "merges.txt")):
        raise ValueError("a folder with a tokenizer (tokenizer.json, or vocab.txt, or vocab.json and merges.txt)")
    return str(folder)


def make_whole_number_parser(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
            raise ValueError(f"a whole number from {least} to {most:,}")
        return int(text)

    return read


@contextmanager
def partners(verb: str, given: argparse.Namespace, own: list[str], many: int) -> "Iterator[tuple[list[Partner], Path]]":
    """Yield the cells that answer and the session's folder; output of their preparation goes to standard error."""
    from ane_sweep.talk import cells

    with ExitStack() as held:
        with redirect_stdout(sys.stderr):
            opened = cells.prepare_partners(verb, given.runs, given.matrix, own, given.out, many, given.tokenizer)
            found = held.enter_context(opened)
        yield found


def introduce_partner(partner: "Partner", ready: dict[str, Any], *more: str) -> None:
    """Print the name, weights, tokenizer and load time of the cell that answers."""
    side = f"{more[1]}  " if len(more) > 1 else ""
    say(
        f"{side}{partner.name}; weights {partner.weights}; tokenizer: {ready['tokenizer']}; loaded in "
        f"{ready['load_ms']:.0f} ms (measured)" + (f"; {more[0]}" if more and more[0] else "")
    )
    if script := stand_in.active():
        say(f"doubt: the stand-in {script.label()} answers for Core ML: no text and no figure is of a device")


def one_text(given: argparse.Namespace, key: str) -> str | None:
    """Return the whole text of a word, a file or a pipe; None if the user types on a terminal. Raises ConfigError."""
    if spoken := next((run for run in getattr(given, "runs", []) if " " in run.partition(":")[0]), None):
        raise ConfigError(f'{spoken}: no run is called so; a text is given as {key}="{spoken}"')
    other = {"text": "prompt", "prompt": "text"}[key]
    if any(asked.startswith(f"{other}=") for asked in given.matrix):
        raise ConfigError(f"{other}=: nothing here reads it; a text is given as {key}=TEXT")
    word = getattr(given, key)
    if word is not None and given.file is not None:
        raise ConfigError(f"{key}= and file=: give one of them")
    if word is not None:
        return not_empty(utf8(word.encode("utf-8", "surrogateescape"), f"{key}="), f"{key}=")
    if given.file is not None:
        return not_empty(read(given.file), f"file={given.file}")
    if sys.stdin is None or sys.stdin.isatty():
        return None
    return not_empty(utf8(sys.stdin.buffer.read(MOST_BYTES + 1), "standard input"), "standard input")


def read(path: Path) -> str:
    """Return the text of a file. Raises ConfigError for a path that is no file of UTF-8 text."""
    try:
        if not path.is_file():
            raise ConfigError(f"file={path}: {'is no file' if path.exists() else 'no such file'}")
        with path.open("rb") as file:
            return utf8(file.read(MOST_BYTES + 1), f"file={path}")
    except OSError as error:
        raise ConfigError(f"file={path}: cannot be read ({error.strerror})") from None


def utf8(raw: bytes, where: str) -> str:
    """Return bytes as text, without the byte order mark that some editors leave, the last end of line and carriage returns."""
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"{where} has more than {MOST_BYTES:,} bytes; give a part of it")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{where} is no UTF-8 text: byte {error.start} (line {line}) is 0x{raw[error.start]:02x}; "
            "`iconv -f latin1 -t utf-8` converts the usual other one"
        ) from None
    return text.replace("\r\n", "\n").removesuffix("\n")


def not_empty(text: str, where: str) -> str:
    if not text:
        raise ConfigError(f"{where} is empty: there is nothing to begin with")
    return text


def read_typed_lines(what: str) -> Iterator[str]:
    """Yield each line that the user types, until Ctrl-D."""
    say(f"{what} (Ctrl-D ends):")
    while True:
        try:
            line = input("> " if sys.stdout.isatty() else "")
        except EOFError:
            print()
            return
        except UnicodeDecodeError:
            say("error: that is no UTF-8 text")
            continue
        if line.strip():
            yield line


def plain(text: str, wide: int = 60) -> str:
    """Return a text as one line, cut to `wide` characters."""
    text = escape_controls(" ".join(text.split()))
    return text if len(text) <= wide else text[: wide - 3] + "..."

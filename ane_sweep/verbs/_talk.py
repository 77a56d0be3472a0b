"""Shared parts of `generate` and `classify`: their words, the cells that answer, and the input of texts."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from ane_sweep.errors import ConfigError, StageError
from ane_sweep.folders import user_path
from ane_sweep.machine import stand_in
from ane_sweep.terminal import NOT_ALL_OK, say
from ane_sweep.words import Parser

if TYPE_CHECKING:
    from ane_sweep.talk.cells import Partner
    from ane_sweep.talk.session import Session

MOST_BYTES = 50_000_000  # of a file: it is read whole


def add_shared_words(parser: Parser, what: str) -> None:
    parser.add("runs RUN", "a run's name, or last, with :axis=value,... for one of its cells", nargs="*")
    parser.matrix()
    parser.outputs()
    parser.add("file=FILE", f"{what} of a UTF-8 file (default: standard input)", user_path)
    parser.add("tokenizer=FOLDER", "another than the checkpoint's own: a folder with tokenizer.json", _tokenizer)


def _tokenizer(text: str) -> str:
    folder = user_path(text).absolute()
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt", "merges.txt")):
        raise ValueError("a folder with a tokenizer (tokenizer.json, or vocab.txt, or vocab.json and merges.txt)")
    return str(folder)


def talk_to_cells(
    verb: str, parser: Parser, given: argparse.Namespace, talk: "Callable[[list[Partner], Path], int]"
) -> int:
    """Return the exit code of `talk`, which gets the cells that answer and the session's folder.

    Output of their preparation goes to standard error.
    """
    from ane_sweep.talk import cells

    count = 2 if given.compare else 1
    try:
        with ExitStack() as held:
            with redirect_stdout(sys.stderr):
                opened = cells.prepare_partners(
                    verb, given.runs, given.matrix, list(parser.keys), given.out, count, given.tokenizer
                )
                partners, folder = held.enter_context(opened)
            return talk(partners, folder)
    except StageError as error:
        say(f"error: {error}")
        return NOT_ALL_OK


@contextmanager
def open_session(
    verb: str, partner: "Partner", folder: Path, given: argparse.Namespace, how: str = ""
) -> "Iterator[Session]":
    """Yield a session; without --json, print the name, weights, tokenizer and load time of the cell that answers."""
    from ane_sweep.talk.session import Session

    with Session(verb, partner.params, partner.inputs, folder) as session:
        if not given.json:
            side, ready = f"{folder.name.upper()}  " if given.compare else "", session.ready
            say(
                f"{side}{partner.name}; weights {partner.weights}; tokenizer: {ready['tokenizer']}; loaded in "
                f"{ready['load_ms']:.0f} ms (measured){how}"
            )
            if script := stand_in.active():
                say(f"doubt: the stand-in {script.label()} answers for Core ML: no text and no figure is of a device")
        yield session


def describe_side(partner: "Partner", session: "Session") -> dict[str, object]:
    """Return the cell and its worker for --json."""
    ready = session.ready
    return {
        "cell": partner.to_dict(), "tokenizer": ready["tokenizer"], "load_ms": ready["load_ms"], "realised": ready["realised"],
    }  # fmt: skip


def one_text(given: argparse.Namespace, key: str) -> str | None:
    """Return the text of a word, a file or a pipe; None if the user types on a terminal. Raises ConfigError."""
    if spoken := next((run for run in getattr(given, "runs", []) if " " in run.partition(":")[0]), None):
        raise ConfigError(f'{spoken}: no run is called so; a text is given as {key}="{spoken}"')
    other = {"text": "prompt", "prompt": "text"}[key]
    if any(asked.startswith(f"{other}=") for asked in given.matrix):
        raise ConfigError(f"{other}=: nothing here reads it; a text is given as {key}=TEXT")
    word = getattr(given, key)
    if word is not None and given.file is not None:
        raise ConfigError(f"{key}= and file=: give one of them")
    if word is not None:
        text, where = utf8(word.encode("utf-8", "surrogateescape"), f"{key}="), f"{key}="
    elif given.file is not None:
        text, where = read(given.file), f"file={given.file}"
    elif sys.stdin is None or sys.stdin.isatty():
        if given.json or given.compare:
            first, second = ("file", "text") if key == "text" else ("prompt", "file")
            raise ConfigError(
                f"{first}= is missing: on a terminal, --json and --compare take it, or {second}=, as a word"
            )
        return None
    else:
        text, where = utf8(sys.stdin.buffer.read(MOST_BYTES + 1), "standard input"), "standard input"
    if not text:
        raise ConfigError(f"{where} is empty: there is nothing to begin with")
    return text


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
    """Decode bytes, without the byte order mark that some editors write, the last end of line and carriage returns."""
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

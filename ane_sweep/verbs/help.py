"""`ane-sweep help [TOPIC | KEY | keys]`: a topic to read, one key, or all keys"""

import contextlib
import io
import re
from pathlib import Path

import ane_sweep
from ane_sweep import verbs
from ane_sweep.csv_files import read_csv
from ane_sweep.errors import ConfigError, suggestion
from ane_sweep.terminal import OK, count
from ane_sweep.words import Parser

DOCS = Path(ane_sweep.__file__).parent / "docs"
_NO_HELP = ("not_done", "rulings")  # topics about this project: no word is explained in them


def help(args: list[str]) -> int:
    """Print the help of a word, or the topics without one. Raises ConfigError for an unknown word."""
    parser = Parser(
        "help [TOPIC | KEY | keys] [--config-dir DIR]",
        "A topic to read, what one key is for with its choices and default, or all keys. Of another word the section of a "
        "topic that is about it. Without a word: the topics.",
        "ane-sweep help models",
    )
    parser.add("word WORD", "a topic, a key, a verb, axes or keys (default: the topics)", nargs="*")
    parser.add("--config-dir, -cd DIR", "options of your own are listed too (default: ./conf)")
    given = parser.read(args)
    print(page(" ".join(given.word).lower(), given.config_dir) if given.word else _list_topics())
    return OK


def _list_topics() -> str:
    rows = [f"  {name:<12} {title}" for name, title in topics().items()]
    head = f"{count(len(rows), 'topic')} to read, each with `ane-sweep help NAME`:"
    tail = "`ane-sweep help keys` lists every key, `ane-sweep help KEY` one with its choices, `ane-sweep --help` the verbs."
    return "\n".join([head, *rows, "", tail])


def page(word: str, config_dir: str | None = None) -> str:
    """Return everything with that name: the key, the topic, the verb; else the sections about it."""
    from ane_sweep.planner import help as keys

    if word in ("keys", "axes"):
        return keys.keys(config_dir) if word == "keys" else keys.axes(config_dir)
    topic = (DOCS / f"{word}.md").read_text(encoding="utf-8").rstrip("\n") if word in topics() else ""
    found = [text for text in (keys.describe_key(word, config_dir), topic) if text]
    if word in verbs.names():
        found.insert(0, _verb(word) + ("\n" if found else ""))
    if not found:
        found = [text for text in (keys.under(word, config_dir), *sections(word)) if text]
        if word == "notebooks":  # each experiment with its command
            rows = read_csv(DOCS.parent / "data" / "notebooks.csv")
            found += [f"{row['what']}\n    {row['command']}" for row in rows]
    if not found:
        known = [*topics(), "keys", *keys.names(), *verbs.names()]
        raise ConfigError(
            f"help {word}: unknown{suggestion(word, known)}; topics: {', '.join(topics())}. "
            "A key's name, a verb or `keys` is known too"
        )
    return "\n".join(found)


def _verb(word: str) -> str:
    """Return what `ane-sweep VERB --help` prints: the verb's words, their defaults and its exit codes."""
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        verbs.find(word)(["--help"])
    return said.getvalue().rstrip("\n")


def topics() -> dict[str, str]:
    """Return {name: title} of every topic."""
    paths = sorted(DOCS.glob("*.md"))
    return {path.stem: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for path in paths}


def sections(word: str) -> list[str]:
    """Return the sections of topics about a word: those with the word in their heading, else those that define it (in
    bold), else the section with the highest density of mentions, and the topics with further ones.
    """
    found = [
        (path.stem, heading, text)
        for path in sorted(DOCS.glob("*.md"))
        if path.stem not in _NO_HELP
        for heading, text in _split(path.read_text(encoding="utf-8"))
    ]
    whole = re.compile(rf"\b{re.escape(word)}s?\b", re.IGNORECASE)
    begun = re.compile(rf"\b{re.escape(word)}\w*", re.IGNORECASE)
    if about := [one for one in found if whole.search(one[1])]:
        return [_section(*one) for one in about]
    if about := [one for one in found if f"**{word}**" in one[2].lower()]:
        return [_section(*one) for one in about]
    by_share = sorted(found, key=lambda one: -len(begun.findall(one[2])) / (len(one[2]) or 1))
    said = [one for one in by_share if begun.search(one[2])]
    also = ", ".join(dict.fromkeys(topic for topic, _, _ in said[1:] if topic != said[0][0]))
    return [_section(*said[0]), *([f"Also in the topics: {also}."] if also else [])] if said else []


def _split(text: str) -> list[tuple[str, str]]:
    """Return (heading, text) of each section of a topic; the part before the first heading gets the topic's title."""
    parts = re.split(r"^#{1,3} (.+)$", text, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], (part.strip() for part in parts[1::2])))


def _section(topic: str, heading: str, text: str) -> str:
    return f"{heading} (`ane-sweep help {topic}`)\n\n{text}\n"

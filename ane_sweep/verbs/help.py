"""`ane-sweep help [TOPIC | KEY | keys]`: a topic to read, one key, or all keys"""

from pathlib import Path

import ane_sweep
from ane_sweep import verbs
from ane_sweep.errors import ConfigError, suggestion
from ane_sweep.terminal import OK, count
from ane_sweep.words import Parser

DOCS = Path(ane_sweep.__file__).parent / "docs"


def help(args: list[str]) -> int:
    """Print what is known of a word; the topics where there is none. Raises ConfigError for a word that nothing knows."""
    parser = Parser(
        "help",
        "[TOPIC | KEY | keys] [--config-dir DIR]",
        "A topic to read, what one key is for with its choices and default, or all keys. Without a word: the topics.",
        "ane-sweep help models",
    )
    parser.add_argument("word", nargs="?", metavar="WORD", help="a topic, a key, a verb, or keys (default: the topics)")
    parser.add_argument(
        "--config-dir", "-cd", metavar="DIR", help="options of your own are listed too (default: ./conf)"
    )
    given = parser.read(args)
    print(_list() if given.word is None else page(given.word.lower(), given.config_dir))
    return OK


def page(word: str, config_dir: str | None = None) -> str:
    """Everything of that name: the key, the topic, the verb."""
    from ane_sweep.planner import help as keys

    if word == "keys":
        return keys.keys(config_dir)
    found = [text for text in (keys.describe_key(word, config_dir), _topic(word)) if text]
    if word in verbs.names():
        found.append(f"`ane-sweep {word} --help` has the verb's words, their defaults and its exit codes.")
    if not found:
        known = [*topics(), "keys", *keys.names(), *verbs.names()]
        raise ConfigError(
            f"help {word}: unknown{suggestion(word, known)}; topics: {', '.join(topics())}. "
            "A key's name, a verb or `keys` is known too"
        )
    return "\n".join(found)


def topics() -> dict[str, str]:
    """Name -> its title, of every topic."""
    paths = sorted(DOCS.glob("*.md"))
    return {path.stem: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for path in paths}


def _topic(word: str) -> str:
    path = DOCS / f"{word}.md"
    return path.read_text(encoding="utf-8").rstrip("\n") if word in topics() else ""


def _list() -> str:
    rows = [f"  {name:<12} {title}" for name, title in topics().items()]
    head = f"{count(len(rows), 'topic')} to read, each with `ane-sweep help NAME`:"
    tail = "`ane-sweep help keys` lists every key, `ane-sweep help KEY` one with its choices, `ane-sweep --help` the verbs."
    return "\n".join([head, *rows, "", tail])

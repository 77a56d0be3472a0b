"""Words of a command in the syntax of systemd, launchd and cron files."""

from collections.abc import Iterable

from ane_sweep.errors import ConfigError


def check_words(words: Iterable[str]) -> None:
    """Raise ConfigError for words that a line of such a file cannot contain."""
    if odd := [word for word in words if any(map(_breaks_a_line, word))]:
        reason = "line breaks, control characters and bytes that are no text cannot stand in these files"
        raise ConfigError([f"{word!r}: {reason}" for word in odd])


def systemd_command(command: Iterable[str]) -> str:
    """Return a command in the syntax of ExecStart= (systemd.service(5)): specifiers (%) and variables ($) doubled, and quoted."""
    return " ".join(map(_systemd_quoted, command))


def _breaks_a_line(character: str) -> bool:
    return character < " " or character in "\x7f\x85\u2028\u2029" or "\ud800" <= character <= "\udfff"


def _systemd_quoted(word: str) -> str:
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = all(c.isalnum() or c in "-_./=+:,%$@" for c in word)
    return word if plain and word else f'"{word}"'

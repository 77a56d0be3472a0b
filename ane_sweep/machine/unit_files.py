"""Words of a command in the syntax of systemd, launchd and cron files."""

import re
from collections.abc import Iterable

from ane_sweep.errors import ConfigError

_BREAKS_A_LINE = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")


def check_words(words: Iterable[str]) -> None:
    """Raise ConfigError for words that a line of such a file cannot contain."""
    if odd := [word for word in words if _BREAKS_A_LINE.search(word)]:
        reason = "line breaks, control characters and bytes that are no text cannot stand in these files"
        raise ConfigError([f"{word!r}: {reason}" for word in odd])


def systemd_command(command: Iterable[str]) -> str:
    """Return a command in the syntax of ExecStart= (systemd.service(5)): specifiers (%) and variables ($) doubled, and quoted."""
    return " ".join(map(_systemd_quoted, command))


def _systemd_quoted(word: str) -> str:
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = all(c.isalnum() or c in "-_./=+:,%$@" for c in word)
    return word if plain and word else f'"{word}"'

"""Masks for text that leaves this machine or reaches a terminal: no passwords, no user names, no control characters.

    mask_private     masks passwords and tokens in addresses, and the names of home folders
    escape_controls  characters that a terminal would obey, or that reverse the order of letters, as escapes: \\x1b
    make_public      both, for text that others will read: reports, trackers, summaries
    markdown         make_public, with all markup escaped (html.escape does the same for a page, whose whole sweep is made public)

Every text that comes from a record, a run or a command passes one of them. Standard library only.
"""

import os
import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST = 3  # letters of a secret that is looked for where no address stands

# An address: user and password (SQLAlchemy takes slashes in one), then parameters, of which some have telling names.
# A path of one has lost a slash: https:/USER@HOST.
_ADDRESS = re.compile(r"(?:(?<=://)|(?<=[a-z]:/)(?!/))\S+")
_USER = re.compile(r"^(?:[^\s/:@]*:\S*|[^\s/?#]*)@")
_PARAMETER = re.compile(r"([?&;#][^?=&;#\s]*=)[^&;#\s\"'<>]+")
_TELLING = re.compile(r"(?i)token|key|secret|pass|pwd|auth|sig|cred|code|jwt|session")
# Someone's home: a name may hold spaces where the path goes on behind it, and before a capital.
_LETTER = r"(?:[^/\\\s\"<>|:;*?',]|[',](?=\w))"
_NAME = rf"(?:{_LETTER}+(?: {_LETTER}+){{0,4}}(?=[/\\])|{_LETTER}+(?: [A-Z]\w*)*)"
_HOME = re.compile(rf"((?:[/\\](?:home|Users)|\b[A-Za-z]:[/\\]+(?:users|USERS|Documents and Settings))[/\\]+){_NAME}")
_HOMES = ("home", "sers", "SERS", "Documents")  # one of them is in whatever _HOME finds
_TILDE = re.compile(r"(?<![\w/.~])~[A-Za-z_][\w.-]*(?=/)")
# C0 but for the end of a line, DEL, C1; soft hyphen, bidirectional and invisible format characters; halves of a pair.
_ODD = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def mask_credentials(text: str) -> str:
    """Return the text without users, passwords and tokens in addresses: `https://***@host/?token=***`."""
    if ":/" not in text:
        return text
    return _ADDRESS.sub(lambda found: _PARAMETER.sub(_mask_parameter, _USER.sub(f"{HIDDEN}@", found[0])), text)


def without_secrets(text: str, address: str) -> str:
    """Return a message about an address without its password and tokens: verbatim, decoded, or as the part that a
    parser took for something else (a port, for example).
    """
    for secret in sorted(_secrets(address), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return mask_credentials(text)


def _secrets(address: str) -> set[str]:
    found: set[str] = set()
    for part in _ADDRESS.findall(address):
        if user := _USER.match(part):
            name, colon, password = user[0][:-1].partition(":")
            found |= {password, *re.split(r"[/?#@:]", password)} if colon else {name}
        found |= {one[0].partition("=")[2] for one in _PARAMETER.finditer(part) if _TELLING.search(one[1])}
    return {way for one in found for way in (one, unquote(one)) if len(way) >= SHORTEST}


def _mask_parameter(found: re.Match[str]) -> str:
    return found[1] + HIDDEN if _TELLING.search(found[1]) else found[0]


def mask_private(text: str) -> str:
    """Return the text without credentials and names in home folders: the user's own home becomes ~, others `/Users/***/models`."""
    text = mask_credentials(text)
    for home, pattern in _own_homes(os.environ.get("HOME")):
        text = pattern.sub("~", text) if home in text else text
    if "~" in text:
        text = _TILDE.sub(f"~{HIDDEN}", text)
    return _HOME.sub(rf"\1{HIDDEN}", text) if any(word in text for word in _HOMES) else text


@cache
def _own_homes(variable: str | None) -> list[tuple[str, re.Pattern[str]]]:
    """Return the spellings of the user's home with their patterns; none if it is unknown or the root folder."""
    try:
        homes = {Path.home(), Path.home().resolve()} | ({Path(variable)} if variable else set())
    except (RuntimeError, OSError):
        return []
    names = [str(home) for home in homes if len(home.parts) > 1]
    return [(name, re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])")) for name in sorted(names, reverse=True)]


def escape_controls(text: str) -> str:
    """Return the text with control and direction characters as escapes; ends of lines stay."""
    return _ODD.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def make_public(text: str) -> str:
    return _make_short_public(text) if len(text) <= 1000 else escape_controls(mask_private(text))


@lru_cache(maxsize=4096)  # records say the same words over and over
def _make_short_public(text: str) -> str:
    return escape_controls(mask_private(text))


def markdown(text: str) -> str:
    """Return text that is safe within a line of Markdown: no pipe ends a column, and no tag, link or line begins."""
    text = make_public(text).replace("\n", " ").strip()
    text = re.sub(r"\\(?=[!-/:-@\[-`{-~]|$)", r"\\\\", text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"\](?=[(\[:])", r"\\]", text).replace("|", "\\|")


def map_texts(value: Any, say: Callable[[str], str] = make_public) -> Any:
    """Return a JSON value with `say` applied to every text in it."""
    if isinstance(value, str):
        return say(value)
    if isinstance(value, dict):
        return {say(key): map_texts(entry, say) for key, entry in value.items()}
    return [map_texts(entry, say) for entry in value] if isinstance(value, (list, tuple)) else value

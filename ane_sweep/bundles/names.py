"""Removal of names from exported sweeps: people, machines, workers of a fleet, addresses and buckets.

    scrub    removes secrets, folders, addresses except those of web pages, and this host's name from a text
    Names    the names in one run; `hide` removes them from a text as well

A worker gets an alias made with the exporting folder's salt, so it is the same in every export of that folder.
"""

import hashlib
import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urlsplit

from ane_sweep import outward
from ane_sweep.bridge.record import Record
from ane_sweep.fleet import address
from ane_sweep.placement import chips

# Paths: the whole text (behind key=) or between quotes, where spaces belong to them; a word of a sentence; a database.
_PART = r"[^\s/\\:;,'\"<>|](?:[^/\\\n:;,'\"<>|]*[^\s/\\:;,'\"<>|])?"
_SPACED = rf"(?:file://)?(?:~(?:\*\*\*)?|[A-Za-z]:)?(?:[/\\]{_PART})*[/\\]({_PART})"
_WHOLE = re.compile(rf"((?:[\w.+~-]+=)?['\"]?){_SPACED}(['\"]?)")
_QUOTED = re.compile(rf"(['\"]){_SPACED}(\1)")
_PATH = re.compile(r"(?<![\w:/.~-])(?:file://|~)?/?(?:/[^\s/'\"<>|,;:)\]}]+)+/([^\s/'\"<>|,;:)\]}]+)")
_DATABASE = re.compile(r"(sqlite:///)[^\s?'\"]*/([^\s/?'\"]+)")

_ADDRESS = re.compile(r"\b([A-Za-z][\w+.-]*)://([^\s'\"<>,;)\]}]+)")
_WEB = ("http", "https", "git+https")
_FILES = ("file", "sqlite")
_LOCAL = re.compile(  # a host of a private network, and an IPv4 address, with their ports
    r"(?<![\w.-])(?:(?:[A-Za-z0-9-]+\.)+(?:local|lan|home|internal|intranet|corp|localdomain|home\.arpa)"
    r"|(?!127\.|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3})(?::\d+)?(?![\w.-])"
)
_SETTINGS = ("store=", "tracking.", "executor.")  # whose addresses are of this network, web pages or not
_ALIAS = re.compile(r"worker-[0-9a-f]{8}")
HOST = "a-host"
SHORTEST = 3  # letters of a name that is looked for in sentences


def scrub(text: str) -> str:
    """Remove secrets, this host's name and names of private hosts from a text; cut absolute paths to their last part,
    and addresses other than web pages to their scheme.
    """
    text = outward.mask_private(text)
    if "://" in text:
        text = _ADDRESS.sub(lambda found: found[0] if found[1] in (*_WEB, *_FILES) else f"{found[1]}://...", text)
    if "/" in text or "\\" in text:
        if whole := _WHOLE.fullmatch(text):
            text = f"{whole[1]}.../{whole[2]}{whole[3]}"
        text = _QUOTED.sub(r"\1.../\2\3", text)
        text = _DATABASE.sub(r"\1.../\2", _PATH.sub(r".../\1", text))
    text = _host_names(socket.gethostname()).sub("this-host", text)
    return _LOCAL.sub(HOST, text) if " " in text or ":" in text else text


@cache
def _host_names(name: str) -> re.Pattern[str]:
    words = sorted((word for word in {name, name.split(".")[0]} if len(word) > 3), key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)" if words else r"(?!)")


@dataclass
class Names:
    """The workers of a run with their aliases, and the hosts and buckets in its addresses."""

    workers: dict[str, str] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        known = dict.fromkeys(self.hosts, HOST) | self.workers
        self.aliases = {
            name: alias for name, alias in known.items() if len(name) >= SHORTEST and name not in chips.table()
        }
        words = "|".join(map(re.escape, sorted(self.aliases, key=len, reverse=True)))
        self.pattern = re.compile(rf"(?<![\w.-])({words})(?::\d+)?(?![\w-])" if words else r"(?!)")

    def hide(self, text: str) -> str:
        """Return a text without the run's names. A text of a single word stays: it may be a model with the name of a worker."""
        text = scrub(text)
        if "://" in text:
            text = _ADDRESS.sub(lambda found: f"{found[1]}://..." if _host(found[0]) in self.hosts else found[0], text)
        if " " in text or ":" in text or text.startswith("machine="):
            text = self.pattern.sub(lambda found: self.aliases[found[1]], text)
        return text

    def rename(self, record: Record) -> None:
        """Replace workers' names by their aliases in the fields of a record that name a worker."""
        if (machine := record.realised.get("machine")) and machine in self.workers:
            record.realised["machine"] = self.workers[machine]
        for values, name in ((record.host, "worker"), (record.cell, "machine")):
            if values.get(name) in self.workers:
                values[name] = self.workers[values[name]]


def names_of(records: Sequence[Record], info: Mapping[str, object], salt: str) -> Names:
    """Collect the names of workers, hosts and buckets in a run."""
    machines, words = info.get("machines"), info.get("command")
    measured = [name for record in records for name in (record.host.get("worker"), record.realised.get("machine"))]
    asked = [name for record in records if (name := record.cell.get("machine")) not in chips.table()]
    known = {*measured, *asked, *(machines if isinstance(machines, dict) else ())}
    workers = {str(name) for name in known if name and not _ALIAS.fullmatch(str(name))}
    command = list(map(str, words)) if isinstance(words, list) else []
    settings = [word for word in command if word.startswith(_SETTINGS)]
    settings.append(json.dumps([info.get("store"), info.get("tracking")]))
    every = [*command, *(record.to_json() for record in records)]
    hosts = set(_hosts(settings, _FILES)) | set(_hosts(every, (*_FILES, *_WEB)))
    salted = {name: hashlib.sha256("\0".join((salt, name)).encode()) for name in workers}
    return Names({name: f"worker-{digest.hexdigest()[:8]}" for name, digest in salted.items()}, hosts)


def _hosts(texts: Sequence[str], left_out: Sequence[str]) -> Iterator[str]:
    """Yield hosts and buckets of the addresses in texts, except this machine's and those of the schemes `left_out`."""
    for found in (found for text in texts for found in _ADDRESS.finditer(text)):
        host = _host(found[0])
        if host and found[1] not in left_out and not address.is_loopback_host(host):
            yield host


def _host(text: str) -> str:
    try:
        return urlsplit(text).netloc.rpartition("@")[2].partition(":")[0]
    except ValueError:
        return ""

"""A finished sweep as one portable file: `ane-sweep export [RUN] FILE`, `ane-sweep import FILE`.

A zip of manifest.json, records.jsonl, run.json and, where it was looked for, drift.json; same sweep, same bytes.

    manifest.json   {format, schema, sweep, host, records, finished, files: [{name, bytes, sha256}]}

No artifacts, no logs, and nothing that names a person or a machine: what outward.py takes away is gone, paths are cut to
their last part, this host's name is replaced, and `host` is a salted digest: bundles of one outputs folder show that
they come from one machine, and nobody can find out which (the salt stays in that folder). Reading trusts nothing: see
`read`.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import socket
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import BinaryIO

import msgspec

from ane_sweep import outward
from ane_sweep.bridge import disk, retold
from ane_sweep.bridge.record import FILE_NAME, Record, read_records
from ane_sweep.bridge.user_files import open_user_file
from ane_sweep.bundles import form
from ane_sweep.errors import StoreError
from ane_sweep.machine import host
from ane_sweep.report import drift
from ane_sweep.report.drift import Drift

FORMAT, SCHEMA = "ane-sweep-bundle", 1
MANIFEST, RUN, DRIFT = "manifest.json", "run.json", "drift.json"
CONTENTS = (FILE_NAME, RUN, DRIFT)  # all that a bundle may hold beside its manifest
MOST_BYTES, MOST_RECORD_BYTES, MANIFEST_BYTES = 256 << 20, 16 << 20, 1 << 20  # a thousand cells are some 20 MB
SEAL, SEAL_BYTES = b"sha256:", 7 + 64  # the zip's comment: the digest of all that comes before it
SALT = "host_salt"
# Paths: the whole text (behind key=) or between quotes, where spaces belong to them; a word of a sentence; a database.
_PART = r"[^\s/\\:;,'\"<>|](?:[^/\\\n:;,'\"<>|]*[^\s/\\:;,'\"<>|])?"
_SPACED = rf"(?:file://)?(?:~(?:\*\*\*)?|[A-Za-z]:)?(?:[/\\]{_PART})*[/\\]({_PART})"
_WHOLE = re.compile(rf"((?:[\w.+~-]+=)?['\"]?){_SPACED}(['\"]?)")
_QUOTED = re.compile(rf"(['\"]){_SPACED}(\1)")
_PATH = re.compile(r"(?<![\w:/.~-])(?:file://|~)?/?(?:/[^\s/'\"<>|,;:)\]}]+)+/([^\s/'\"<>|,;:)\]}]+)")
_DATABASE = re.compile(r"(sqlite:///)[^\s?'\"]*/([^\s/?'\"]+)")
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, NotImplementedError, KeyError)


@dataclass
class Bundle:
    """What a file holds, checked."""

    manifest: form.Manifest
    records: list[Record]
    info: form.Run
    drift: Drift | None

    @property
    def identity(self) -> str:
        """The sweep on the machine that ran it: the same in every export of it."""
        return f"{self.manifest.sweep}@{self.manifest.host}"


def export(run_folder: Path, target: Path, out: Path) -> int:
    """Write the bundle of a run; returns its number of records. Raises StoreError where the file cannot be written."""
    records = read_records(run_folder)
    info = disk.read_json(run_folder / RUN) or {}
    kept = ("stamp", "command", "axes", "cells", "started", "finished")
    for record in records:
        record.artifacts = [replace(item, path=f".../{Path(item.path).name}") for item in record.artifacts]
    texts = {
        FILE_NAME: "".join(record.to_json() + "\n" for record in retold.records(records, scrubbed)),
        RUN: json.dumps(outward.values({name: info[name] for name in kept if name in info}, scrubbed), indent=1),
    }
    if (found := drift.read(run_folder)) is not None:
        texts[DRIFT] = json.dumps(msgspec.to_builtins(found.told(scrubbed)), indent=1)
    contents = {name: text.encode() for name, text in texts.items()}
    manifest = {
        "format": FORMAT,
        "schema": SCHEMA,
        "sweep": run_folder.name,
        "host": (info.get("imported") or {}).get("host") or host_id(out),
        "records": len(records),
        "finished": info.get("finished"),
        "files": [{"name": n, "bytes": len(b), "sha256": hashlib.sha256(b).hexdigest()} for n, b in contents.items()],
    }
    _write(target, {MANIFEST: json.dumps(manifest, indent=1).encode(), **contents})
    return len(records)


def _write(target: Path, contents: dict[str, bytes]) -> None:
    """Write the zip to the user's path; no times, owners or orders of the moment in it."""
    try:
        with open_user_file(target) as aside:
            with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
                for name, content in contents.items():
                    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                    entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
                    archive.writestr(entry, content)
                archive.comment = SEAL.ljust(SEAL_BYTES, b"0")
            seal(aside)
    except OSError as error:
        raise StoreError(f"{target}: cannot be written ({error.strerror})") from error


def seal(path: Path) -> None:
    """Put the digest of a zip into its comment, which must have SEAL_BYTES already."""
    with open(path, "r+b") as file:
        digest = _digest(file)
        file.seek(-SEAL_BYTES, os.SEEK_END)
        file.write(SEAL + digest)


def _digest(file: BinaryIO) -> bytes:
    """sha256 in hex of an open file but for its seal."""
    left, digest = os.fstat(file.fileno()).st_size - SEAL_BYTES, hashlib.sha256()
    file.seek(0)
    while left > 0 and (part := file.read(min(left, 1 << 20))):
        digest.update(part)
        left -= len(part)
    return digest.hexdigest().encode()


def scrubbed(text: str) -> str:
    """A text without secrets, in which absolute paths are cut to their last part and this host's name is gone."""
    text = outward.redacted(text)
    if "/" in text or "\\" in text:
        if whole := _WHOLE.fullmatch(text):
            text = f"{whole[1]}.../{whole[2]}{whole[3]}"
        text = _QUOTED.sub(r"\1.../\2\3", text)
        text = _DATABASE.sub(r"\1.../\2", _PATH.sub(r".../\1", text))
    return _host_names(socket.gethostname()).sub("this-host", text)


@cache
def _host_names(name: str) -> re.Pattern[str]:
    words = sorted((word for word in {name, name.split(".")[0]} if len(word) > 3), key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)" if words else r"(?!)")


def host_id(out: Path) -> str:
    """16 hex digits for this machine, salted with a secret of the outputs folder."""
    path = out / SALT
    try:
        with open(path, "x", encoding="ascii") as file:
            os.chmod(path, 0o600)
            file.write(secrets.token_hex(32))
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror})") from error
    salted = "\0".join([path.read_text(encoding="ascii"), host.digest(), socket.gethostname()])
    return hashlib.sha256(salted.encode()).hexdigest()[:16]


def read(path: Path) -> Bundle:
    """Open and check a bundle. Raises StoreError with the reason, before anything was written anywhere.

    The seal tells accidents, not intent, so nothing else relies on it: only the names of CONTENTS are read, each at most
    as far as the manifest says it goes, none is ever unpacked to disk under a name of its own, and every byte of them
    is under a checksum.
    """
    try:
        with open(path, "rb") as file:
            digest = _digest(file)
            if file.read() != SEAL + digest:
                raise StoreError(_unsealed(file))
        with zipfile.ZipFile(path) as archive:
            manifest = _manifest(archive)
            contents = {item.name: _content(archive, item) for item in manifest.files}
        return _checked(manifest, contents)
    except StoreError as error:
        raise StoreError(f"{path}: refused: {error}") from error
    except FileNotFoundError:
        raise StoreError(f"{path}: no such file") from None
    except _BROKEN as error:
        raise StoreError(f"{path}: refused: no whole bundle ({_words(error)}); export it again") from error


def _unsealed(file: BinaryIO) -> str:
    file.seek(0)
    if file.read(4) != b"PK\x03\x04":
        return "it is no file that `ane-sweep export` wrote"
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(file) as archive:
        if MANIFEST not in archive.namelist():
            return "it is a zip, and none that `ane-sweep export` wrote"
    return "it was cut short or changed since it was exported (its seal does not fit); export it again"


def _manifest(archive: zipfile.ZipFile) -> form.Manifest:
    names = [entry.filename for entry in archive.infolist()]
    if strange := [name for name in names if name not in (MANIFEST, *CONTENTS)]:
        raise StoreError(f"it holds {strange[0][:80]!r}, which is no part of a bundle")
    if len(set(names)) != len(names) or MANIFEST not in names or FILE_NAME not in names or RUN not in names:
        raise StoreError(
            f"it must hold {MANIFEST}, {FILE_NAME} and {RUN} once each; it holds {', '.join(names) or 'nothing'}"
        )
    with _told(MANIFEST):
        plain = form.parsed(_bounded(archive, MANIFEST, MANIFEST_BYTES).decode())
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise StoreError(f"its manifest is not one of {FORMAT}")
    if not isinstance(plain.get("schema"), int) or plain["schema"] > SCHEMA:
        raise StoreError(f"it has schema {plain.get('schema')!r}, this ane-sweep reads {SCHEMA}: update ane-sweep")
    manifest = form.read(form.Manifest, plain)
    listed = sorted(item.name for item in manifest.files)
    if listed != sorted(set(names) - {MANIFEST}):
        raise StoreError(
            f"its manifest lists {', '.join(listed)}, it holds {', '.join(sorted(set(names) - {MANIFEST}))}"
        )
    if sum(item.bytes for item in manifest.files) > MOST_BYTES:
        raise StoreError(f"it would unpack to more than {MOST_BYTES >> 20} MiB")
    return manifest


def _content(archive: zipfile.ZipFile, item: form.Part) -> bytes:
    content = _bounded(archive, item.name, item.bytes)
    if len(content) != item.bytes or hashlib.sha256(content).hexdigest() != item.sha256:
        raise StoreError(f"{item.name} is not what was exported: its checksum differs")
    return content


def _bounded(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A file of the archive, unpacked no further than it may be, whatever its header claims."""
    with archive.open(name) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise StoreError(f"{name} unpacks to more than the {most} bytes that it may have")
    return content


def _checked(manifest: form.Manifest, contents: dict[str, bytes]) -> Bundle:
    lines = [(n, line) for n, line in enumerate(contents[FILE_NAME].split(b"\n"), 1) if line.strip()]
    records = [_record(line, f"line {n} of {FILE_NAME}") for n, line in lines]
    if len(records) != manifest.records or not records:
        raise StoreError(f"it has {len(records)} records, its manifest says {manifest.records}")
    if len({record.cell_key for record in records}) != len(records):
        raise StoreError("it has two records of one cell")
    with _told(RUN):
        info = form.read(form.Run, form.parsed(contents[RUN].decode()))
    found = None
    if DRIFT in contents:
        with _told(DRIFT):
            found = form.read(Drift, form.parsed(contents[DRIFT].decode()))
    return Bundle(manifest, records, info, found)


def _record(line: bytes, where: str) -> Record:
    if len(line) > MOST_RECORD_BYTES:
        raise StoreError(f"{where} is longer than {MOST_RECORD_BYTES >> 20} MiB")
    with _told(where):
        return form.record(form.parsed(line.decode()), where)


@contextlib.contextmanager
def _told(where: str) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise StoreError(f"{where}: {error}") from error


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:120]}".rstrip(": ")

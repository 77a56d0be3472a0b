"""A finished sweep as one portable file: `ane-sweep export [RUN] FILE`, `ane-sweep import FILE`.

The file is a zip of manifest.json, records.jsonl, run.json and, if drift was tested, drift.json; the same sweep gives
the same bytes.

    manifest.json   {format, schema, sweep, host, records, finished, files: [{name, bytes, sha256}]}

A bundle holds no artifacts, no logs, and no name of a person or a machine: names.py removes names, and `host` is a
salted digest. Bundles of one outputs folder show that they come from one machine, but not from which one (the salt
stays in that folder). Everything in a file is checked on reading: see `read`.
"""

import contextlib
import hashlib
import json
import os
import secrets
import socket
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import msgspec

from ane_sweep import outward
from ane_sweep.bridge import disk
from ane_sweep.bridge.disk import open_user_file
from ane_sweep.bridge.record import FILE_NAME, Record, map_record_texts, read_records
from ane_sweep.bundles import form
from ane_sweep.bundles.names import names_of
from ane_sweep.errors import StoreError
from ane_sweep.machine import host
from ane_sweep.mil import untrusted
from ane_sweep.report import drift
from ane_sweep.report.drift import Drift

FORMAT, SCHEMA = "ane-sweep-bundle", 1
MANIFEST, RUN, DRIFT = "manifest.json", "run.json", "drift.json"
CONTENTS = (FILE_NAME, RUN, DRIFT)  # all that a bundle may hold beside its manifest
MOST_BYTES, MOST_RECORD_BYTES, MANIFEST_BYTES = 256 << 20, 16 << 20, 1 << 20  # a thousand cells are some 20 MB
MOST_FILE_BYTES = MOST_BYTES + 2 * MANIFEST_BYTES  # of the zip, which is no larger than what it holds
SEAL, SEAL_BYTES = b"sha256:", 7 + 64  # the zip's comment: the digest of all that comes before it
SALT = "host_salt"
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, NotImplementedError, KeyError)


@dataclass
class Bundle:
    """The checked content of a bundle file."""

    manifest: form.Manifest
    records: list[Record]
    info: form.Run
    drift: Drift | None

    @property
    def identity(self) -> str:
        """Return the name of the sweep on the machine that ran it, which is the same in every export."""
        return f"{self.manifest.sweep}@{self.manifest.host}"


def export(run_folder: Path, target: Path, out: Path) -> int:
    """Write the bundle of a run and return its number of records. Raises StoreError if the file cannot be written."""
    records = read_records(run_folder)
    info = disk.read_json(run_folder / RUN) or {}
    kept = ("stamp", "command", "axes", "cells", "started", "finished")
    names = names_of(records, info, _salt(out))
    for record in records:
        names.rename(record)
        record.artifacts = [replace(item, path=f".../{Path(item.path).name}") for item in record.artifacts]
    run = outward.map_texts({name: info[name] for name in kept if name in info}, names.hide)
    lines = "".join(record.to_json() + "\n" for record in map_record_texts(records, names.hide))
    texts = {FILE_NAME: lines, RUN: json.dumps(run, indent=1)}
    if (found := drift.read(run_folder)) is not None:
        texts[DRIFT] = json.dumps(msgspec.to_builtins(found.with_texts(names.hide)), indent=1)
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
    """Write the zip to the user's path, without times or owners, so that the same sweep gives the same bytes."""
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
    """Return the sha256 in hex of an open file, computed without its seal."""
    left, digest = os.fstat(file.fileno()).st_size - SEAL_BYTES, hashlib.sha256()
    file.seek(0)
    while left > 0 and (part := file.read(min(left, 1 << 20))):
        digest.update(part)
        left -= len(part)
    return digest.hexdigest().encode()


def host_id(out: Path) -> str:
    """Return 16 hex digits for this machine, salted with a secret of the outputs folder."""
    salted = "\0".join([_salt(out), host.digest(), socket.gethostname()])
    return hashlib.sha256(salted.encode()).hexdigest()[:16]


def _salt(out: Path) -> str:
    """Return the secret of an outputs folder; the first call makes it. Raises StoreError."""
    path = out / SALT
    try:
        with open(path, "x", encoding="ascii") as file:
            os.chmod(path, 0o600)
            file.write(secrets.token_hex(32))
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror})") from error
    return path.read_text(encoding="ascii")


def read(path: Path) -> Bundle:
    """Open and check a bundle. Raises StoreError with the reason, before anything was written anywhere.

    The seal detects accidents, not intent, so no other check relies on it: only the names of CONTENTS are read, each up
    to the length that the manifest states, no file is unpacked to disk under its name in the zip, and a checksum covers
    every byte.
    """
    try:
        with untrusted.open_file(path, MOST_FILE_BYTES) as file:
            digest = _digest(file)
            if file.read(SEAL_BYTES + 1) != SEAL + digest:
                raise StoreError(_explain_broken_seal(file))
            with zipfile.ZipFile(file) as archive:
                manifest = _manifest(archive)
                contents = {item.name: _unpack(archive, item.name, item.bytes) for item in manifest.files}
        return _check_contents(manifest, contents)
    except StoreError as error:
        raise StoreError(f"{path}: refused: {error}") from error
    except FileNotFoundError:
        raise StoreError(f"{path}: no such file") from None
    except _BROKEN as error:
        words = f"{type(error).__name__}: {str(error)[:120]}".rstrip(": ")
        raise StoreError(f"{path}: refused: no whole bundle ({words}); export it again") from error


def _explain_broken_seal(file: BinaryIO) -> str:
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
    with _name_place(MANIFEST):
        plain = form.parse_json(_unpack(archive, MANIFEST, MANIFEST_BYTES).decode())
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise StoreError(f"its manifest is not one of {FORMAT}")
    if not isinstance(plain.get("schema"), int) or plain["schema"] > SCHEMA:
        raise StoreError(f"it has schema {plain.get('schema')!r}, this ane-sweep reads {SCHEMA}: update ane-sweep")
    manifest = form.read(form.Manifest, plain)
    listed, there = sorted(item.name for item in manifest.files), sorted(set(names) - {MANIFEST})
    if listed != there:
        raise StoreError(f"its manifest lists {', '.join(listed)}, it holds {', '.join(there)}")
    if sum(item.bytes for item in manifest.files) > MOST_BYTES:
        raise StoreError(f"it would unpack to more than {MOST_BYTES >> 20} MiB")
    return manifest


def _unpack(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return a file of the archive, unpacked to at most `most` bytes, whatever size its header claims."""
    with archive.open(name) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise StoreError(f"{name} unpacks to more than the {most} bytes that it may have")
    return content


def _check_contents(manifest: form.Manifest, contents: dict[str, bytes]) -> Bundle:
    for item in manifest.files:
        content = contents[item.name]
        if len(content) != item.bytes or hashlib.sha256(content).hexdigest() != item.sha256:
            raise StoreError(f"{item.name} is not what was exported: its checksum differs")
    lines = [(n, line) for n, line in enumerate(contents[FILE_NAME].split(b"\n"), 1) if line.strip()]
    records = []
    for n, line in lines:
        where = f"line {n} of {FILE_NAME}"
        if len(line) > MOST_RECORD_BYTES:
            raise StoreError(f"{where} is longer than {MOST_RECORD_BYTES >> 20} MiB")
        with _name_place(where):
            records.append(form.record(form.parse_json(line.decode()), where))
    if len(records) != manifest.records or not records:
        raise StoreError(f"it has {len(records)} records, its manifest says {manifest.records}")
    if len({record.cell_key for record in records}) != len(records):
        raise StoreError("it has two records of one cell")
    with _name_place(RUN):
        info = form.read(form.Run, form.parse_json(contents[RUN].decode()))
    with _name_place(DRIFT):
        found = form.read(Drift, form.parse_json(contents[DRIFT].decode())) if DRIFT in contents else None
    return Bundle(manifest, records, info, found)


@contextlib.contextmanager
def _name_place(where: str) -> Iterator[None]:
    """Prefix the message of a StoreError raised inside with the place."""
    try:
        yield
    except StoreError as error:
        raise StoreError(f"{where}: {error}") from error

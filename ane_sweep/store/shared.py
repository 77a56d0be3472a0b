"""A store that several machines share: artifacts under the same keys as in the cache, files under their digests.

    URL/cas/<sha256[:2]>/<sha256>          a file; equal weights of several artifacts are there once
    URL/ac/<stage>/<key[:2]>/<key>.json    the list of an artifact's files, written last: complete or absent
    URL/tmp/                               files being written, if the file system has no atomic put

Each file is checked against its digest before the cache takes it. A fault of the store fails no cell: an artifact that
cannot be pulled is made here, one that cannot be pushed stays here, and the reason is shown once.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

import msgspec

from ane_sweep import native_errors, outward
from ane_sweep.bridge import disk, kept
from ane_sweep.bridge.stages import ALL
from ane_sweep.bridge.task import TaskResult
from ane_sweep.errors import ConfigError, StoreError, Unfit
from ane_sweep.store import files, remote
from ane_sweep.store.cache import Store
from ane_sweep.store.files import FILES, RESULT, File, Listing, Origin
from ane_sweep.terminal import count, size

T = TypeVar("T")
SCHEMA = 1
REST_S = 300.0  # a store that failed after all attempts is left alone for so long
# Preparations. The result of a stage that runs a program is a figure of its machine, and stays there.
SHARED = {name for name, stage in ALL.items() if stage.stored and not stage.runs_program}


@dataclass(frozen=True)
class Manifest:
    """The content of ac/.../<key>.json: `listing` is the artifact's files.json."""

    stage: str
    key: str
    listing: Listing
    schema: int = SCHEMA


@dataclass
class Tally:
    """A process's traffic with a store: (stage, key) of artifacts pulled and pushed, and of those that failed, with reasons."""

    pulled: list[tuple[str, str]] = field(default_factory=list)
    pushed: list[tuple[str, str]] = field(default_factory=list)
    unpushed: dict[tuple[str, str], str] = field(default_factory=dict)
    unpulled: dict[tuple[str, str], str] = field(default_factory=dict)
    pulled_bytes: int = 0
    pushed_bytes: int = 0

    def as_plain(self) -> dict[str, object]:
        """Return the tally in the form of run.json."""
        left = [{"stage": stage, "key": key, "reason": reason} for (stage, key), reason in self.unpushed.items()]
        return {
            "pulled": len(self.pulled), "pulled_bytes": self.pulled_bytes,
            "pushed": len(self.pushed), "pushed_bytes": self.pushed_bytes, "unpushed": left,
        }  # fmt: skip


class Damaged(Exception):
    """Raised if an arrived file differs from its manifest; the text describes the difference."""


class Shared:
    """A store behind a URL, for artifacts of some stages. The first use connects. Raises ConfigError for a bad URL.

    stop   once it is set, nothing more is pulled or pushed, and what is on its way is given up

    Its methods may be called by several threads, and raise nothing for what the store does.
    """

    def __init__(
        self,
        url: str,
        tell: Callable[[str], None] = kept.tell,
        stages: Collection[str] = frozenset(SHARED),
        stop: threading.Event | None = None,
    ) -> None:
        if (fault := remote.problem("store", url)) is not None:
            raise ConfigError(fault)
        self.url = outward.mask_credentials(url)  # as it is told
        self.tally = Tally()
        self._stages, self._tell = stages, tell
        self._stop = stop or threading.Event()
        self._remote = remote.Remote(url, self._stop)
        self._mutex = threading.Lock()
        self._rests: dict[str, tuple[float, str]] = {}  # read, write -> until when it is left alone, and why
        self._told: set[str] = set()
        self._damaged: dict[tuple[str, str], str] = {}
        self._known: set[tuple[str, str]] = set()  # what is there, as this process has seen or made it
        self._bad_files: set[str] = set()  # digests that are missing there or hold other bytes

    def has(self, stage: str, key: str) -> bool:
        """Return True if the store has a manifest of the artifact, and no file of it was found damaged."""
        return stage in self._stages and (stage, key) not in self._damaged and self._manifest(stage, key) is not None

    def damage(self, stage: str, key: str) -> str | None:
        """Describe why the store's copy of an artifact was unusable, as one clause, or return None."""
        return self._damaged.get((stage, key))

    def pull(self, store: Store, stage: str, key: str, inputs: Mapping[str, Origin] | None = None) -> Path | None:
        """Return the artifact's folder in the cache, after copying it there if needed.

        Return None if the store has no intact artifact that was made from `inputs`.
        """
        self.tally.unpulled.pop((stage, key), None)
        here = store.intact(stage, key)
        if here is not None and (inputs is None or ((held := files.listing(here)) and held.inputs == inputs)):
            return here
        manifest = self._manifest(stage, key) if stage in self._stages else None
        if manifest is None and (why := self._resting("read")) is not None:
            self.tally.unpulled[stage, key] = why
        if manifest is None or (inputs is not None and manifest.listing.inputs != dict(inputs)):
            self._known.discard((stage, key))
            return None
        needed, free = sum(file.bytes for file in manifest.listing.files), files.free_bytes(store.root)
        aside = None
        try:
            if needed > free:
                raise StoreError(f"it has {size(needed)}, and {size(free)} are free here")
            aside = store.stage_aside(stage, key)
            result = self._fetch(manifest, aside)
            if result is None:
                self.tally.unpulled[stage, key] = self._resting("read") or "the sweep was stopped"
                return None
            store.remove(stage, key)  # what lies there cannot be used
            folder = store.commit(aside, stage, key, result, manifest.listing.inputs)
        except Damaged as error:
            self._refuse(stage, key, str(error), "; it is made again, and replaced there")
            return None
        except (OSError, StoreError) as error:  # this disk, or a manifest that names what no disk can hold
            why = str(error) if isinstance(error, StoreError) else native_errors.explain(error)
            self.tally.unpulled[stage, key] = why
            self._say(f"{stage} could not be pulled: {why}")
            return None
        finally:
            if aside is not None:
                store.discard(aside)
        with self._mutex:
            self._known.add((stage, key))
            self.tally.pulled.append((stage, key))
            self.tally.pulled_bytes += needed
        return folder

    def push(self, store: Store, stage: str, key: str, again: bool = False) -> None:
        """Copy an artifact of the cache to the store: files that it lacks, then the manifest. An existing artifact is
        skipped, unless `again`: another process has found it damaged, and all of it is sent.
        """
        if stage not in self._stages or ((stage, key) in self._known and not again):
            return
        if (folder := store.intact(stage, key)) is None:
            return
        listing = files.listing(folder)
        assert listing is not None  # it is intact
        if again:
            self._bad_files |= {file.sha256 for file in (*listing.files, listing.result)}
        elif (stage, key) not in self._damaged:
            there = self._manifest(stage, key)
            if there is not None and there.listing.inputs == listing.inputs:  # then equal keys mean equal artifacts
                self._known.add((stage, key))
                return
        sent = self._reach("write", lambda: self._send(Manifest(stage, key, listing), folder))
        with self._mutex:
            if sent is None:
                self.tally.unpushed[stage, key] = self._rests.get("write", (0.0, "the sweep was stopped"))[1]
                return
            self.tally.unpushed.pop((stage, key), None)
            self._damaged.pop((stage, key), None)
            self._known.add((stage, key))
            self.tally.pushed.append((stage, key))
            self.tally.pushed_bytes += sent

    def retry_pushes(self, store: Store) -> None:
        """Push again the artifacts that could not be pushed, in case the store is available now."""
        until, _ = self._rests.get("write", (0.0, ""))
        if until < float("inf"):
            self._rests.pop("write", None)
        for stage, key in list(self.tally.unpushed):
            self.push(store, stage, key)

    def describe_traffic(self) -> str:
        """Return this process's traffic with the store as one sentence."""
        tally, left = self.tally, ""
        if tally.unpushed:
            reasons = "; ".join(dict.fromkeys(tally.unpushed.values()))
            left = f", {count(len(tally.unpushed), 'artifact')} not pushed ({reasons}): the same command tries again"
        return (
            f"store={self.url}: {len(tally.pulled)} pulled ({size(tally.pulled_bytes)}), "
            f"{len(tally.pushed)} pushed ({size(tally.pushed_bytes)}){left}"
        )

    def _refuse(self, stage: str, key: str, fault: str, then: str = "") -> None:
        with self._mutex:
            self._damaged[stage, key] = fault
        self._say(f"store={self.url}: {stage} {key[:12]} is refused: {fault}{then}")

    def _resting(self, side: str) -> str | None:
        """Return why the store is not contacted at present, or None if it may be."""
        until, why = self._rests.get(side, (0.0, ""))
        return why if time.monotonic() < until else None

    def _manifest(self, stage: str, key: str) -> Manifest | None:
        place = _place(stage, key)
        try:
            return _as_manifest(self._reach("read", lambda: self._remote.read(place)), stage, key)
        except Unfit as error:
            self._refuse(stage, key, f"its manifest, {place}, {error}")
            return None

    def _fetch(self, manifest: Manifest, aside: Path) -> TaskResult | None:
        """Copy all files of an artifact into `aside`; return its result, or None if the store is out of reach."""
        for file in (*manifest.listing.files, manifest.listing.result):
            path = aside / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                there = self._reach("read", partial(self._remote.get, _blob(file), path, file.bytes), path)
                if there is None:
                    return None
                if there and files.sha256(path) == file.sha256:
                    continue
                fault = "holds other bytes" if there else "is missing"
            except Unfit as error:
                fault = str(error)
            with self._mutex:
                self._bad_files.add(file.sha256)
            raise Damaged(f"{file.name}, {_blob(file)}, {fault}")
        result = TaskResult.read(aside / RESULT)
        if result is None or (result.stage, result.key, result.status) != (manifest.stage, manifest.key, "ok"):
            raise Damaged(f"its {RESULT} is no result of this task")
        (aside / RESULT).unlink()
        return result

    def _send(self, mine: Manifest, folder: Path) -> int:
        """Send the files that the store lacks, then the manifest. Return the bytes sent."""
        sent = 0
        for file in (*mine.listing.files, mine.listing.result):
            if file.sha256 in self._bad_files or self._remote.size(_blob(file)) not in (file.bytes, -1):
                self._remote.put(_blob(file), folder / file.name)
                sent += file.bytes
                self._bad_files.discard(file.sha256)
        text = disk.as_json(msgspec.to_builtins(mine))
        self._remote.write(_place(mine.stage, mine.key), text)
        return sent + len(text)

    def _reach(self, side: str, do: Callable[[], T], to: Path | None = None) -> T | None:
        """Call `do` and return its result, or None if the store cannot be read or written.

        A failure is shown once, and then the store is not contacted for a while. Raises StoreError if `to` is on a full
        disk.
        """
        until, _ = self._rests.get(side, (0.0, ""))
        if self._stop.is_set() or time.monotonic() < until:
            return None
        try:
            return do()
        except Unfit:  # one file's fault, not the store's
            raise
        except Exception as error:  # file systems have no error in common, and none costs a cell
            if self._stop.is_set():
                return None
            if to is not None and native_errors.is_out_of_space(error):
                raise StoreError(native_errors.no_space_reason(to)) from error
            reason = remote.why(error)
            rest = float("inf") if remote.is_forbidden(error) else REST_S
            self._rests[side] = (time.monotonic() + rest, reason)
            stays = "artifacts are made here" if side == "read" else "what is made stays in the cache here"
            self._say(f"store={self.url} cannot be {'read' if side == 'read' else 'written'}: {reason}; {stays}")
            return None

    def _say(self, sentence: str) -> None:
        with self._mutex:
            fresh = sentence not in self._told
            self._told.add(sentence)
        if fresh:
            self._tell(sentence)


def _place(stage: str, key: str) -> str:
    return f"ac/{stage}/{key[:2]}/{key}.json"


def _blob(file: File) -> str:
    return f"cas/{file.sha256[:2]}/{file.sha256}"


def _as_manifest(text: bytes | None, stage: str, key: str) -> Manifest | None:
    """Parse a manifest; return None unless it belongs to this artifact and all its names stay within a folder."""
    try:
        found = None if text is None else kept.as_kind(json.loads(text), Manifest)
    except (ValueError, RecursionError):
        return None
    if found is None or (found.schema, found.stage, found.key) != (SCHEMA, stage, key):
        return None
    listed = found.listing
    if not listed.files or listed.result.name != RESULT:
        return None
    for file in (*listed.files, listed.result):
        if file.bytes < 0 or not re.fullmatch("[0-9a-f]{64}", file.sha256):
            return None
    for file in listed.files:
        path = PurePosixPath(file.name)
        is_inside = not path.is_absolute() and ".." not in path.parts and "\0" not in file.name
        if not is_inside or file.name in (FILES, RESULT, "", "."):
            return None
    return found

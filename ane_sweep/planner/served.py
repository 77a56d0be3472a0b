"""Any checkpoint as a model: `model=ORG/NAME`, `model=ORG/NAME@REVISION`, `model=./FOLDER`. From its config.json, which
must name an architecture that a family here serves, the option is made that conf/model/ would contain.
"""

import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path

from ane_sweep import folders
from ane_sweep.bridge import families, nanogpt
from ane_sweep.bridge.families import Serves
from ane_sweep.bridge.settings import read_model
from ane_sweep.errors import ConfigError
from ane_sweep.planner import any_class, architecture, derive, options, sizing, unread
from ane_sweep.planner.checkpoint_files import Hub, is_folder
from ane_sweep.planner.checkpoints import described, json_object
from ane_sweep.planner.paths import conf_dir

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", re.ASCII)
_UNREAD = ("task_specific_params", "label2id", "auto_map")  # of config.json: large, and nothing here is built of them
_ALIKE = 0.6  # of the keys of a family's architecture, for it to be called the nearest
_BLOCKS = 10**4
_MODULE_WAY = "Any PyTorch module converts as `original` through model=module: see `ane-sweep help own_models`"


def is_checkpoint(name: object) -> bool:
    """Return True if a value of `model` has the form of a repository or a folder, not of a code file or package."""
    if not isinstance(name, str) or not (is_folder(name) or _REPOSITORY.fullmatch(name)):
        return False
    return unread.suggest_words(name) is None


def option(name: str) -> dict[str, object]:
    """Return the option for model=NAME. Raises ConfigError if it has no config.json or no family serves it."""
    path = _config(name)
    config = json_object(name, path)
    if nanogpt.is_config(config):
        raise ConfigError(
            f"model={name}: a nanoGPT checkpoint, which says no architecture; model=nanogpt weights={name}"
        )
    if "${" in path.read_text(encoding="utf-8", errors="replace"):
        raise ConfigError(f"model={name}: {path} holds ${{...}}, which would be looked up on this machine; take it out")
    try:
        family, serves, task = _match_family(name, config)
    except _Unserved:
        given = any_class.option(name, path.parent, config)
        if given is None:
            raise
        return given
    arch = {key: value for key, value in described(config, serves, task).items() if key not in _UNREAD}
    return _option(name, family, serves, task, arch)


def _config(name: str) -> Path:
    if is_folder(name):
        path = folders.user_path(name) / "config.json"
        if not path.is_file():
            raise ConfigError(
                f"model={name}: no config.json there; a checkpoint folder holds config.json and model.safetensors"
            )
        return path
    choices = "model=./FOLDER (a checkpoint on this disk), or an option of conf/model/ with weights=random"
    hub = Hub(name, name, Path(), "no config.json", choices)
    if cached := hub.path("config.json"):
        return cached
    found = hub.remote("config.json")
    if found is None or found.path is None:
        raise ConfigError(
            f"model={name}: the repository has no config.json, so nothing says what it holds; {_MODULE_WAY}"
        )
    return found.path


def _match_family(name: str, config: Mapping[str, object]) -> tuple[str, Serves, str]:
    """Return (family, its checkpoints, task). Raises ConfigError with the nearest family, and the way to add a model of another one."""
    kind, listed = config.get("model_type"), config.get("architectures")
    named = [str(one)[:80] for one in listed] if isinstance(listed, list) else []
    if config.get("quantization_config") is not None:
        raise ConfigError(
            f"model={name}: its weights are stored quantised (quantization_config), and families here read floating-point "
            "numbers; take the checkpoint that it was made from, and a precision of ours"
        )
    known = {family: serves for family in families.names() if (serves := families.serves(family))}
    for family, serves in known.items():
        if kind in serves.model_types:
            for one in named:
                if one in serves.several:
                    raise ConfigError(f"model={name}: {serves.several[one].format(name=name)}")
                if one in serves.architectures:
                    return family, serves, serves.architectures[one]
            of_it = f"family {family} serves {', '.join(serves.architectures)} of this model_type"
            raise _unserved(name, kind, named, of_it)
    near = _nearest(config)
    raise _unserved(name, kind, named, f"the nearest, by the keys of its config.json, is {near}" if near else "")


class _Unserved(ConfigError):
    """A checkpoint of a class that no family serves."""


def _unserved(name: str, kind: object, named: list[str], near: str) -> _Unserved:
    what = f"{', '.join(named) or 'no architecture'} (model_type {str(kind)[:80]!r})"
    return _Unserved(f"model={name}: no family here serves {what}{f'; {near}' if near else ''}. {_MODULE_WAY}")


def _nearest(config: Mapping[str, object]) -> str | None:
    """Return the family with the most similar config.json and name (by its tiny option), or None."""
    found: dict[str, float] = {}
    tiny = [name for name in options.names([conf_dir()], "model") if name.startswith("tiny-")]
    for shipped in (read_model(options.shipped("model", name)) for name in tiny):
        keys = shipped.arch.keys() - {"vocab_size"}
        if (shared := len(keys & config.keys()) / len(keys)) >= _ALIKE:
            name = SequenceMatcher(None, shipped.family, str(config.get("model_type"))[:80])
            found[shipped.family] = shared + name.ratio()
    return max(found, key=lambda family: found[family], default=None)


def _option(name: str, family: str, serves: Serves, task: str, arch: dict[str, object]) -> dict[str, object]:
    """Return the option for a checkpoint, as a file conf/model/NAME.yaml would contain it."""
    if found := architecture.problems(arch):
        raise ConfigError([f"model={name}: {problem}" for problem in found])
    layers_key, longest_key = serves.key(task, serves.layers), serves.longest and serves.key(task, serves.longest)
    layers = architecture.total(arch, layers_key)
    if not isinstance(layers, int) or not 1 <= layers <= _BLOCKS:
        raise ConfigError(f"model={name}: its config.json lacks {layers_key}, the number of layers, or says {layers!r}")
    if derive.longest_input(arch, serves, task) is None:
        lacking = "image_size and patch_size" if task.startswith("image") else longest_key
        raise ConfigError(f"model={name}: its config.json lacks {lacking}, the longest input")
    parameters = sizing.estimate(arch, serves, task)
    known = {"family": family, "task": task, "hub": name, "parameters": parameters, "arch": arch}
    return derive.complete("model", name, known)

"""The known model families and their variants, read from their sources without importing them (and torch)."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import ane_sweep
from ane_sweep.bridge import declared, plugins
from ane_sweep.errors import ConfigError

FOLDER = Path(ane_sweep.__file__).parent / "worker" / "models"
_NOT_FAMILIES = {"weights"}


@dataclass(frozen=True)
class Serves:
    """The checkpoints of transformers that a family takes: one literal of its module, `SERVES = Serves(...)`.

    architectures    a name in config.json's `architectures` -> the task that the model is built for
    model_types      values of config.json's `model_type`
    layers, longest  keys of config.json: the number of blocks; the longest input, or None if no key holds it
    otherwise        the longest input if config.json does not give it
    reserved         number of positions that no text may use
    tied             whether the head is the table of embeddings, unless config.json says otherwise
    per_layer        places in a block where the program can always be cut
    parts            if one config.json describes several models: task -> the key of that model's own part, which holds
                     `layers` and `longest`; a config.json of one model alone is read as that part
    norms            "layer" (a weight and a bias for each channel) or "rms" (a weight alone)
    gated            whether the feed-forward has a third projection, its gate; or the key of config.json whose value
                     then begins with "gated-"
    unbuilt          a key of config.json -> the value that no variant here can build
    several          an architecture that contains several models -> a sentence with the choices; {name} is the
                     checkpoint
    own_mask         its module in transformers makes the causal mask itself and has no cache: the variant `original`
                     offers no choice of either
    """

    architectures: dict  # type: ignore[type-arg]  # of texts; read from a literal
    model_types: tuple[str, ...]
    layers: str = "num_hidden_layers"
    longest: str | None = "max_position_embeddings"
    otherwise: int = 0
    reserved: int = 0
    tied: bool = True
    per_layer: int = 2
    parts: dict = field(default_factory=dict)  # type: ignore[type-arg]
    several: dict = field(default_factory=dict)  # type: ignore[type-arg]
    own_mask: bool = False
    norms: Literal["layer", "rms"] = "layer"
    gated: bool | str = False
    unbuilt: dict = field(default_factory=dict)  # type: ignore[type-arg]

    def key(self, task: str, name: str) -> str:
        """Return a key of config.json, dotted if the task's model has a part of its own there."""
        return f"{self.parts[task]}.{name}" if task in self.parts else name

    def has_gate(self, arch: Mapping[str, object]) -> bool:
        """Return True if the feed-forward of this architecture has a gate."""
        return str(arch.get(self.gated)).startswith("gated-") if isinstance(self.gated, str) else self.gated

    def find_unbuilt(self, arch: Mapping[str, object]) -> list[str]:
        """Return one sentence for each setting of an architecture that this family cannot build."""
        return [
            f"its config.json has {key}={str(value).lower()}, and no variant is built for that"
            for key, value in self.unbuilt.items()
            if arch.get(key) == value
        ]


def names() -> list[str]:
    """Return the names of the known families, sorted: our modules that are not helpers, and those that other packages declare."""
    return sorted({*_listed(FOLDER), *plugins.find_plugins("families")})


@cache
def _listed(folder: Path) -> list[str]:
    return [path.stem for path in declared.modules(folder) if path.stem not in _NOT_FAMILIES]


def source(family: str) -> Path:
    """Return the path of a family's module. Raises ConfigError for an unknown family; names with a dot or a leading _ are unknown."""
    if (plugin := plugin_of(family)) is not None and plugin.source is not None:
        return plugin.source
    if family not in (known := names()):
        raise ConfigError(
            f"unknown model family {family!r}; known: {', '.join(known)}. To add it, write "
            f"ane_sweep/worker/models/{family}.py and conf/model/<name>.yaml with `family: {family}`"
        )
    return FOLDER / f"{family}.py"


def problem(family: str) -> str | None:
    """Return why a family of another package cannot be used (it is broken, or its name is taken), or None if it can."""
    return plugins.problem("families", family, _listed(FOLDER))


def plugin_of(family: str) -> plugins.Plugin | None:
    """Return the plug-in that defines a family, or None for a family of ours. Raises ConfigError if the plug-in is broken."""
    return plugins.only("families", family, _listed(FOLDER))


@cache
def variants(family: str) -> list[str]:
    """Return the names of a family's variants. Raises ConfigError for an unknown family, or one that declares none."""
    path, plugin = source(family), plugin_of(family)
    where = f"{path} of {plugin}" if plugin else f"{path}"
    try:
        body = ast.parse(path.read_text(encoding="utf-8"), str(path)).body
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"{where} cannot be read: {error}") from None
    values = {ast.unparse(node.targets[0]): node.value for node in body if isinstance(node, ast.Assign)}
    if isinstance(table := values.get("VARIANTS"), ast.Dict):
        return [ast.literal_eval(key) for key in table.keys if key is not None]
    if "FAMILY" in values:
        return ["original", "split_einsum"]
    raise ConfigError(f'{where} has no top-level `VARIANTS = {{"name": function}}`; write one, as other families do')


@cache
def serves(family: str) -> Serves | None:
    """Return a family's declaration of the checkpoints that it takes, or None if it declares none (probe)."""
    path = source(family)
    return declared.read(path, "SERVES", Serves) if "\nSERVES = " in path.read_text(encoding="utf-8") else None

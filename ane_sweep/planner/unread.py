"""Messages for unknown words: keys, options, and Hydra's own settings."""

import re
from pathlib import Path

from ane_sweep.bridge import plugins
from ane_sweep.errors import ConfigError, nearest, suggestion
from ane_sweep.planner import schema

PACKAGES = (".mlpackage", ".mlmodel", ".mlmodelc")
GROUPS = ("model", "precision", "sweep")
_TORCHVISION = re.compile(  # its classifiers, as torchvision.models calls them
    r"alexnet|convnext_(tiny|small|base|large)|densenet(121|161|169|201)|efficientnet_(b[0-7]|v2_[sml])|googlenet|inception_v3|maxvit_t"
    r"|mnasnet[01]_\d+|mobilenet_v(2|3_large|3_small)|regnet_[xy]_\d+(_\d)?[mg]f|(wide_)?resnet\d+(_2)?|resnext\d+_\d+x\d+d"
    r"|shufflenet_v2_x\d_\d|squeezenet1_[01]|swin_(v2_)?[tsb]|vgg(11|13|16|19)(_bn)?|vit_[blh]_(14|16|32)"
)
_WAYS = {  # in place of what Hydra would do by itself
    "hydra/launcher": "lanes=N prepares N tasks side by side",
    "hydra.launcher": "lanes=N prepares N tasks side by side",
    "hydra/sweeper": "key=a,b with -m is a matrix, and sweep/NAME.yaml keeps one",
    "hydra.sweeper": "key=a,b with -m is a matrix, and sweep/NAME.yaml keeps one",
    "hydra.sweep": "out=PATH says where a sweep leaves what it makes",
    "hydra.run": "out=PATH says where a sweep leaves what it makes",
    "hydra.mode": "-m runs a matrix",
    "hydra.searchpath": "--config-dir DIR is a folder of your own options",
}


def hydras(name: str) -> str:
    way = next((f"; {way}" for known, way in _WAYS.items() if f"{name}.".startswith(f"{known}.")), "")
    return f"{name}: Hydra only composes here, and nothing reads settings of its own{way}"


def lacking_key(error: ConfigError) -> str | None:
    """Return the key that an override could not change because it does not exist; None for another error."""
    found = re.search(r"Could not override '([^']*)'", error.problems[0])
    return found[1] if found else None


def unknown_key(name: str) -> str:
    if name in schema.KEYS:
        return schema.no_default(name)
    group, _, key = name.partition(".")
    if group == "model" and key in schema.GIVEN:
        return f"{name}: belongs to {schema.GIVEN[key]}; see `ane-sweep help own_models`"
    return f"{name}: nothing reads this key{suggestion(name, [*schema.KEYS, *GROUPS])}; `ane-sweep help keys` lists the keys"


def unknown_option(group: str, name: object, options: list[str]) -> str:
    if group == "model" and (known := suggest_words(str(name))):
        return f"model={name}: unknown; {known}"
    more = ""
    if group == "model":
        folder = Path(str(name)).is_dir()
        more = f", the folder is model=./{name}" if folder else ", a checkpoint is ORG/NAME of the hub or ./FOLDER"
    broken = plugins.broken(*(kind for kind, folder in plugins.OPTIONS.items() if folder == group))
    choices = nearest(name, options, f"ane-sweep help {group}")
    return ". ".join(
        (
            f"{group}={name}: unknown{suggestion(name, options)}; choices: {choices}",
            f"A new one is a file {group}/{name}.yaml in ./conf, or in a folder given with --config-dir{more}",
            *broken,
        )
    )


def suggest_words(name: str) -> str | None:
    """Return advice on how to request a model by its path or from torchvision; None for any other name."""
    place, colon, what = name.rpartition(":")
    if _TORCHVISION.fullmatch(name):
        return (
            f"of torchvision it is model=module model.path=torchvision.models:{name} 'model.inputs={{x: [1,3,224,224]}}' "
            "(pip install 'ane-sweep[vision]'); model.kwargs={weights: DEFAULT} takes its trained weights from torch's cache"
        )
    if name.endswith(PACKAGES):
        return f"a package is model=package model.path={name}"
    if name.endswith(".py"):
        place, what = name, "NAME"
    elif not (colon and what.isidentifier() and place):
        return None
    return (
        f"a module of your own is model=module model.path={place}:{what} 'model.inputs={{NAME: [1,3,224,224]}}', with the name and "
        "the shape of each input (ane-sweep help own_models)"
    )

"""The fields of a model's or a precision's option that its other fields determine, so that files need not repeat them."""

from collections.abc import Mapping

from ane_sweep.bridge import families, recipes
from ane_sweep.bridge.families import Serves
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.errors import ConfigError
from ane_sweep.planner import architecture, sizing

Option = dict[str, object]
_PER_LAYER = 2  # places to cut in a block of a family that declares no checkpoints
_CLOSE_DB = 50  # less than fp16 storage explains: something in the program loses more


def complete(group: str, name: str, option: Option) -> Option:
    """Return an option completed by its derived fields; fields in the option itself stay.

    An option that builds on others (`defaults`) has their fields and stays unchanged.
    Raises ConfigError for an architecture from which nothing can be derived.
    """
    if "defaults" in option or set(_ORDER[group]) <= set(option):
        return dict(option)
    arch = option.get("arch")
    if group == "model" and isinstance(arch, dict) and (found := architecture.problems(arch)):
        raise ConfigError([f"model={name}: {problem}" for problem in found])
    derived = {"model": _model_fields, "precision": _precision_fields}[group](option)
    known = {"name": name} | derived | dict(option)
    if not derived:
        return known
    order = _ORDER[group]
    return {key: known[key] for key in sorted(known, key=lambda key: order.index(key) if key in order else len(order))}


_ORDER = {
    "model": (
        "name", "family", "size", "task", "hub", "package", "parameters", "layers", "max_seq_len", "cut_points", "texts", "arch",
        "arch_keys",
    ),
    "precision": ("name", "compute", "fp32_ops", "weights", "min_target", "min_psnr_db"),
}  # fmt: skip


def longest_input(arch: Mapping[str, object], serves: Serves, task: str) -> int | None:
    """Return the longest input that an architecture takes, or None if neither it nor its family gives one."""
    stated = architecture.at(arch, serves.key(task, serves.longest)) if serves.longest else None
    positions = (
        stated if isinstance(stated, int) else serves.otherwise or sizing.patches(sizing.own(arch, serves, task))
    )
    return positions - serves.reserved if positions else None


def _precision_fields(option: Option) -> Option:
    weights = option.get("weights")
    least = "iOS15"
    if isinstance(weights, dict) and not recipes.problems(weights) and (recipe := recipes.canonical(weights)):
        least = recipes.least_target(recipe)[0]
    close = None if weights is not None else _CLOSE_DB
    return {"compute": "fp16", "fp32_ops": [], "weights": None, "min_target": least, "min_psnr_db": close}


def _model_fields(option: Option) -> Option:
    """Return the fields that an architecture implies; without one (a model given by its path) there are none."""
    arch, family = option.get("arch"), option.get("family")
    if not isinstance(arch, dict) or not isinstance(family, str):
        return {}
    try:
        serves = families.serves(family)
    except ConfigError:  # refused later, with the families that there are
        serves = None
    tasks = set(serves.architectures.values()) if serves else set()
    task = str(option.get("task", next(iter(tasks)) if len(tasks) == 1 else ""))
    stated = option.get("arch_keys") or (_arch_keys(arch, serves, task) if serves else {})
    keys = stated if isinstance(stated, dict) else {}
    layers = architecture.total(arch, str(keys.get("layers")))
    longest = architecture.at(arch, str(keys.get("max_seq_len")))
    if not isinstance(longest, int) and serves:
        longest = longest_input(arch, serves, task)
    parameters = option.get("parameters")
    fields: Option = {"task": task or None, "hub": None, "package": None, "layers": layers, "max_seq_len": longest}
    fields |= {"texts": {"count": KINDS[task].texts if task in KINDS else 16}}
    fields |= {"arch_keys": keys} if keys else {}
    if isinstance(layers, int):
        fields["cut_points"] = (serves.per_layer if serves else _PER_LAYER) * layers + 1
    if isinstance(parameters, int):
        many = parameters >= 1e9  # 1.6b, 124m
        fields["size"] = f"{parameters / 1e9:.1f}b" if many else f"{max(1, round(parameters / 1e6))}m"
    return {key: value for key, value in fields.items() if value is not None or key in ("hub", "package")}


def _arch_keys(arch: Mapping[str, object], serves: Serves, task: str) -> dict[str, str | None]:
    """Return the keys of an architecture that hold its number of layers and its longest input."""
    longest = serves.key(task, serves.longest) if serves.longest else None
    stated = longest is not None and isinstance(architecture.at(arch, longest), int) and not serves.reserved
    return {"layers": serves.key(task, serves.layers), "max_seq_len": longest if stated else None}

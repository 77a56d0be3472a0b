"""The keys of a configuration: types, choices and purpose. One table checks, explains and completes them."""

from collections.abc import Iterable, Mapping

from ane_sweep.bridge import recipes, shapes, stages
from ane_sweep.bridge.axes import TARGETS
from ane_sweep.bridge.cell import DECLARED
from ane_sweep.bridge.executors import EXECUTORS
from ane_sweep.bridge.key import NONE, NUMBER, Key, abbreviate
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.errors import suggestion
from ane_sweep.planner import architecture
from ane_sweep.store import remote

_YEAR, _TIB = 31_536_000, 65_536
_A_YEAR, _A_TIB = "that is a year", "that is 64 TiB"
_KEPT = "each is kept, and written to samples.json"
_LARGER = "no model is larger"
_NOT_TIMED = "latency=off times nothing"


def _seconds(help: str, *or_types: type) -> Key:
    return Key((*NUMBER, *or_types), help, least=0, most=86_400, why="that is a day")


def _texts(help: str, most: int, why: str) -> Key:
    return Key((list,), help, items=(str,), most=most, why=why)


# The axes first, each as its field of the cell says; then the policies of a cell, and the settings of a whole sweep.
KEYS: dict[str, Key] = {
    **{name: axis.key for name, axis in DECLARED.items() if axis.key},
    "latency.warmup": Key((int,), "calls before the steady samples (kept)", least=0, most=10**6, why=_KEPT),
    "latency.samples": Key((int,), "steady calls", least=1, most=10**6, why=_KEPT, why_least=_NOT_TIMED),
    "latency.max_seconds": _seconds("stop sampling after this long; one sample is always taken"),
    "latency.idle_s": _seconds("pause before one last call; null: 2 under coreml, none elsewhere", NONE),
    "latency.repeats": Key(
        (int, str),
        "fresh processes that time the same program, in rounds over all cells; auto: 4, 1 where that takes over 30 s, "
        "and off a Mac only a check that it runs; off (latency=off): nothing is timed",
        least=0,
        words=("auto", "off"),
        most=1000,
        why="each loads the program again",
    ),
    "chips": _texts("chips to predict placement for; `ane-sweep devices` lists them", 100, "each is a prediction"),
    "budget_minutes": Key(
        (*NUMBER, NONE), "no task begins after this long; null: no limit", least=0.01, most=_YEAR / 60, why=_A_YEAR
    ),
    "nightly.enabled": Key((bool,), "lock, rotation, comparison with the good nights, retention, summary"),
    "nightly.keep_runs": Key(
        (int,), "finished runs that a nightly keeps, beside the good ones", least=1, most=10**6, why="each is a folder"
    ),
    "nightly.cache_gb": Key(
        NUMBER, "what a nightly prunes the cache to", least=0, most=10**6, why="that is a petabyte"
    ),
    "search.minimise": _texts("figures that `best` makes small", 10, "a front of more says nothing"),
    "search.maximise": _texts("figures that `best` makes large", 10, "a front of more says nothing"),
    "search.limits": _texts("what `best` takes no cell without: psnr_db>=40", 100, "it has no more figures"),
    "search.trials": Key(
        (int, NONE), "cells that `best` times at most; null: as many as may still win", least=1, most=10**6, why=_LARGER
    ),
    "search.seed": Key(
        (int,), "of the sampler that `best` asks where nothing predicts", least=0, most=2**32 - 1, why=_LARGER
    ),
    "gate.wait_s": _seconds(
        "wait this long for a quiet, cool machine before a timing; 0: look all the same, as the record says what was seen"
    ),
    "gate.busy": Key(
        NUMBER,
        "share of the processor that other programs may use while timing; 1: nobody looks, which spares 0.2 s a timing",
        least=0,
        most=1,
        why="that is all of it",
    ),
    "max_cells": Key(
        (int,),
        "refuse a matrix of more cells, before it is listed",
        least=1,
        most=10**6,
        why="a plan of them takes gigabytes",
    ),
    "executor.name": Key(
        (str,), "; ".join(f"executor={name}: {one.help}" for name, one in EXECUTORS.items()), tuple(EXECUTORS)
    ),
    "executor.address": Key((str, NONE), "the fleet's scheduler, as tls://HOST:8786"),
    "executor.certificates": Key(
        (str, NONE), "folder of `ane-sweep fleet init`; null: $ANE_SWEEP_FLEET, or fleet in the user's data folder"
    ),
    "executor.wait_s": _seconds("wait this long for a worker that fits, or the scheduler, then record why"),
    "lanes": Key((int,), "preparations side by side", least=1, most=1000, why="each is a process"),
    "memory_gib": Key(
        (*NUMBER, NONE),
        "what all lanes may use together; null: 85 % of this host's memory",
        least=0.5,
        most=_TIB,
        why=_A_TIB,
    ),
    "out": Key((str, NONE), "outputs folder; null: $ANE_SWEEP_OUT or ./outputs"),
    "store": Key(
        (str, NONE),
        "where machines share what prepares: a URL that fsspec knows, or a folder; null: nowhere",
        check=remote.problem,
    ),
    "resume": Key((str, NONE), "null: go on with this command's unfinished run; last or a run's name: its records"),
    "tracking.enabled": Key((bool,), "log to MLflow at the end"),
    "tracking.uri": Key(
        (str, NONE), "any MLflow tracking URI; null: $MLFLOW_TRACKING_URI, or sqlite under the outputs folder"
    ),
    "tracking.experiment": Key((str, NONE), "MLflow experiment; null: $MLFLOW_EXPERIMENT_NAME, or ane-sweep"),
    "tracking.ui": Key(
        (str, NONE), "address of the MLflow UI in the printed link; null: the server, or http://127.0.0.1:5000"
    ),
}
for _stage in stages.limits():
    KEYS[f"limits.{_stage}.timeout_s"] = Key(
        NUMBER, f"wall time of one {_stage} task", least=1, most=_YEAR, why=_A_YEAR
    )
    KEYS[f"limits.{_stage}.memory_gib"] = Key(
        (*NUMBER, NONE), f"memory of one {_stage} task; null: memory_gib", least=0.25, most=_TIB, why=_A_TIB
    )

# What the options of a group are made of. `arch` is the checkpoint's own config.json and is read by transformers.
GROUP_KEYS: dict[str, dict[str, Key]] = {
    "model": {
        "name": Key((str,), "the option's name", label=True),
        "family": Key((str,), "a module of ane_sweep/worker/models"),
        "size": Key((str,), "for people", label=True),
        "task": Key((str,), "what the outputs mean", tuple(KINDS)),
        "hub": Key((str, NONE), "id on the Hugging Face hub"),
        "package": Key((dict, NONE), "Python package that carries the weights: {module, folder}"),
        "parameters": Key((int,), "number of parameters, tied ones once", least=1, most=10**13, why=_LARGER),
        "layers": Key((int,), "transformer blocks", least=1, most=10**4, why=_LARGER),
        "max_seq_len": Key((int,), "longest input", least=1, most=10**8, why=_LARGER),
        "cut_points": Key((int,), "places where the program can always be cut", least=0, most=10**5, why=_LARGER),
        "texts.count": Key(
            (int,), "how many texts are scored", least=1, most=10**4, why="each is a forward pass in fp32"
        ),
        "arch": Key((dict,), "the architecture, as in the checkpoint's config.json"),
        "arch_keys.layers": Key(
            (str,), "the key of arch that holds the number of layers, or a list of them; a.b reaches into a"
        ),
        "arch_keys.max_seq_len": Key((str, NONE), "the key of arch that holds the longest input"),
        "path": Key((str, NONE), "a model that is given: nets.py:MyNet, my_pkg.nets:MyNet, or a package's folder"),
        "function": Key((str, NONE), "of a package with several functions: which one is scored and timed"),
        "inputs": Key((dict, NONE), "its inputs: name -> shape, or {shape, dtype, range}", check=shapes.problem),
        "kwargs": Key((dict, NONE), "arguments of what its path names"),
        "sources": Key((list, NONE), "more files that it is made from", items=(str,), most=1000, why="each is hashed"),
        "samples": Key((str, NONE), "an .npz of inputs to score on"),
        "reference": Key((str, NONE), "an .npz of inputs and outputs to score against"),
    },
    "precision": {
        "name": Key((str,), "the option's name", label=True),
        "compute": Key((str,), "dtype of the ops", ("fp16", "fp32")),
        "fp32_ops": _texts(
            "fp16: types, names or modules (patterns) of the ops that stay in fp32",
            1000,
            "a pattern stands for many ops",
        ),
        "weights": Key((dict, NONE), "recipe applied to the weights after conversion: see ane_sweep/bridge/recipes.py"),
        "min_target": Key((str,), "first target OS that can hold it", TARGETS),
        "min_psnr_db": Key(
            (*NUMBER, NONE),
            "a cell whose PSNR (of several outputs: the worst) is under this is degraded; null: no gate",
            most=200,
            why="that is what equal outputs have",
        ),
    },
}
# What only an option with a `path` has, whose model is given; and what it has not, as nobody knows it before it is built.
GIVEN = dict.fromkeys(("path", "inputs", "samples"), "model=module, package, onnx and exported") | {
    "kwargs": "model=module", "sources": "model=module", "reference": "model=package", "function": "model=package",
}  # fmt: skip
_BUILT = (
    "hub", "package", "parameters", "layers", "max_seq_len", "cut_points", "arch", "arch_keys.layers", "arch_keys.max_seq_len",
)  # fmt: skip
LABELS = {f"{group}.{name}" for group, keys in GROUP_KEYS.items() for name, key in keys.items() if key.label}
SWEEP_KEYS = ("name", "description", "axes", "pairs", "exclude")


def problems(config: Mapping[str, object]) -> list[str]:
    """Return a sentence for every key of a composed configuration that is unknown, missing, or has a wrong type or value."""
    rest = {key: value for key, value in config.items() if key not in (*GROUP_KEYS, "sweep")}
    found = [*problems_of_groups(config), *_problems_in(rest, KEYS, "")]
    sweep = config.get("sweep") or {}
    if not isinstance(sweep, dict):
        return [*found, f"sweep={abbreviate(sweep)}: expected one of the options in conf/sweep/"]
    return found + [
        f"sweep.{key}: nothing reads this key{suggestion(key, SWEEP_KEYS)}; a sweep has: {', '.join(SWEEP_KEYS)}"
        for key in sweep
        if key not in SWEEP_KEYS
    ]


def problems_of_groups(config: Mapping[str, object]) -> list[str]:
    """Return the problems in the groups `model` and `precision` of a configuration."""
    model, precision = config.get("model"), config.get("precision")
    found = _problems_in(model, _keys_of_model(model), "model")
    if not found and isinstance(model, dict) and "path" not in model:
        found += _problems_of_model(model["package"], model["arch"], model["arch_keys"])
    wrong = _problems_in(precision, GROUP_KEYS["precision"], "precision")
    if wrong or not isinstance(precision, dict):
        return found + wrong
    name = abbreviate(precision["name"], "")  # a word of the command line may have changed a part of its file
    return found + [
        f"{problem} (precision={name}: it stands in precision/{name}.yaml, or in a word precision.weights.* of the command line)"
        for problem in recipes.problems(precision["weights"])
    ]


def _keys_of_model(option: object) -> dict[str, Key]:
    """Return the keys of a model option; a model given by its path has the common keys, and those of GIVEN that it sets."""
    stated = set(option) if isinstance(option, dict) else set()
    given = "path" in stated and "arch" not in stated
    left_out = {*_BUILT, *(GIVEN.keys() - stated)} if given else set(GIVEN)
    return {name: key for name, key in GROUP_KEYS["model"].items() if name not in left_out}


def _problems_of_model(
    package: dict[str, object] | None, arch: dict[str, object], keys: dict[str, str | None]
) -> list[str]:
    found = [
        f"model.arch_keys.{name}={key}: model.arch has no such key"
        for name, key in keys.items()
        if key and architecture.at(arch, key) is None
    ]
    if package and (
        set(package) != {"module", "folder"} or not all(isinstance(text, str) for text in package.values())
    ):
        found.append(f"model.package={abbreviate(package)}: expected the texts module and folder")
    return found


def sweep_problems(sweep: object) -> list[str]:
    """Return the malformed parts of a sweep option; the form is axes: {key: values}, pairs: [{key: values}], exclude: [{key: value}]."""
    if not isinstance(sweep, dict):
        return [f"sweep={abbreviate(sweep)}: expected axes, pairs or exclude"]
    axes, pairs, exclude = (sweep.get(name) or [] for name in ("axes", "pairs", "exclude"))
    if axes and not isinstance(axes, dict):
        return [f"sweep.axes={abbreviate(axes)}: expected a mapping of keys to lists"]
    found = []
    for name, rows in (("pairs", pairs), ("exclude", exclude)):
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            found.append(f"sweep.{name}={abbreviate(rows)}: expected a list of mappings")
        elif name == "pairs" and not all(isinstance(values, list) for row in rows for values in row.values()):
            found.append(f"sweep.pairs={abbreviate(rows)}: expected lists of values")
    if not found:
        keys = [key for row in ([axes] if axes else []) + pairs + exclude for key in row]
        found += [f"sweep: {key!r} is no key; expected text" for key in keys if not isinstance(key, str)]
    return found


def _problems_in(config: object, keys: dict[str, Key], prefix: str) -> list[str]:
    if not isinstance(config, dict):
        return [f"{prefix}={config!r}: expected one of the options in conf/{prefix}/"]
    values = dict(leaves(config, keys))
    dot = f"{prefix}." if prefix else ""
    found = [f"{dot}{name}: nothing reads this key{suggestion(name, keys)}" for name in values if name not in keys]
    found += [f"{dot}{name}: missing" if prefix else no_default(name) for name in keys if name not in values]
    for name, value in values.items():
        if name in keys and (problem := keys[name].problem(dot + name, value)):
            found.append(problem)
    return found


def no_default(name: str) -> str:
    """Return the message for a key of the table that the configuration lacks."""
    return f"{name}: has no default: conf/config.yaml lacks the key (or ~{name} removed it)"


def leaves(config: Mapping[str, object], keys: dict[str, Key], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Yield (dotted name, value) of every leaf; a key of the table is a leaf even if its value is a mapping."""
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and name not in keys:
            yield from leaves(value, keys, f"{name}.")
        else:
            yield name, value

"""`ane-sweep run PACKAGE --input x.npy`: one prediction of any ML Program, on any host"""

import argparse
import contextlib
import resource
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import numpy as np

from ane_sweep import installed, tables
from ane_sweep.bridge.disk import open_user_file
from ane_sweep.errors import AneSweepError, ConfigError
from ane_sweep.machine.memory import memory_budget
from ane_sweep.mil.effects import PRODUCT_NS, select_effects
from ane_sweep.terminal import BAD_CONFIGURATION, OK, say, tell
from ane_sweep.words import Parser, make_integer_reader

if TYPE_CHECKING:
    from ane_sweep.reference.features import Feature
    from ane_sweep.reference.model import Model, ModelState
    from ane_sweep.reference.trace import ObservedValue

_SLOW_S = 20  # from so long a wait on, it is said before
_SHOWN = 4  # values of an output that are printed


def add_shared_options(parser: Parser, *models: str) -> None:
    """Add the options that `run` and `diff` share; `models` are the positional words."""
    for model in models:
        parser.add(f"{model} {model.upper()}", "a .mlpackage (or .mlmodel) of an ML Program", Path)
    parser.add(
        "--input [NAME=]FILE",
        "an .npy array, an .npz of arrays by name, or an image; NAME may be left out where there is one input",
        default=[],
        action="append",
    )
    parser.add("--random SEED", "seeded random values for inputs that are not given", make_integer_reader(0))
    parser.add("--function NAME", "of a multifunction package (default: its default one)", default="")
    parser.add("--numerics fp16|fp32|ane", "how to compute (default: as declared)")
    parser.add("--effects NAME,...", "with --numerics ane: names of its effects (default: those measured by several)")
    parser.add("--device cpu|cuda", "cuda: an NVIDIA GPU", default="cpu")


def run(args: list[str]) -> int:
    """Predict once and print the outputs; return 0, or 2 if the model or an input is wrong."""
    options = Parser(
        "run MODEL [--input [NAME=]FILE]... [--random SEED] [--output FILE.npz] [--value NAME]... [--watch] [--drift N] [--json]",
        "One prediction of any ML Program by the reference runtime, on any host: what comes out, and what happens inside.",
        "ane-sweep run model.mlpackage --input x.npy",
        {BAD_CONFIGURATION: "a wrong word, or a model or an input that cannot be used"},
    )
    add_shared_options(options, "model")
    options.add("--output FILE.npz", "write all array outputs", Path)
    options.add("--value NAME", "an intermediate value as well", default=[], action="append")
    options.add("--watch", "list ops with NaN, infinite or saturated values")
    options.add("--drift N", "the N ops that lose most against fp32", make_integer_reader(0))
    options.json("package, computed, outputs, values, watched, drift, written", "lines of text")
    return _run(options.read(args))


@contextlib.contextmanager
def within_memory() -> Iterator[None]:
    """Limit this process to a sweep's memory, so that a larger request ends with an error message, not with a kill."""
    (soft, hard), most = resource.getrlimit(resource.RLIMIT_DATA), memory_budget(None)
    most = most if soft == resource.RLIM_INFINITY else min(soft, most)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    except MemoryError as error:
        sentence = f"it needs more than the {most / 1e9:.3g} GB that this process may have: {error}"
        raise AneSweepError(sentence) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@within_memory()
def _run(given: argparse.Namespace) -> int:
    installed.need_worker("ane-sweep run")
    from ane_sweep.reference import trace

    model = load(given.model, given)
    if given.numerics == "ane":
        say_if_slow(given.model, given.effects.split(",") if given.effects else None, "--numerics ane")
    inputs = read_inputs(given.input, model.inputs, given.random)
    outputs = predict(model, inputs)
    kept = trace.collect_values(model, inputs, given.value, make_state(model)) if given.value else {}
    watched = trace.record_values(model, inputs, make_state(model)) if given.watch else None
    exact = load(given.model, given, numerics="fp32") if given.drift else None
    worst = trace.rank_worst(trace.measure_drift(model, exact, inputs), given.drift) if exact else None
    if given.output:
        _write(given.output, outputs | kept)
    if given.json:
        tell(
            package=str(given.model), computed=describe_numerics(model), outputs=_plain(outputs), values=_plain(kept),
            watched=to_dicts(watched), drift=to_dicts(worst), written=given.output and str(given.output),
        )  # fmt: skip
        return OK
    print(f"{given.model} on the reference runtime: {describe_numerics(model)}")
    for name, value in [*outputs.items(), *kept.items()]:
        print(f"  {name}: {describe_value(value)}")
    if watched is not None:
        _print_watched(watched)
    if worst is not None:
        print_drift(worst, "ops that lose most against fp32")
    if given.output:
        print(f"written: {given.output} ({', '.join(_arrays(outputs | kept))})")
    return OK


def make_state(model: "Model") -> "ModelState | None":
    return model.new_state() if model.states else None


def predict(model: "Model", inputs: Mapping[str, object]) -> dict[str, object]:
    return model.predict(inputs, make_state(model))


def _plain(values: Mapping[str, object]) -> dict[str, object]:
    """Return each array's type, shape, extremes and number of non-finite elements; any other value as text."""
    return {
        name: _figures(value) if isinstance(value, np.ndarray) else describe_value(value)
        for name, value in values.items()
    }


def _figures(value: np.ndarray) -> dict[str, object]:
    shape: dict[str, object] = {"dtype": str(value.dtype), "shape": list(value.shape)}
    if not value.size or value.dtype.kind not in "biuf":
        return shape
    finite = value[np.isfinite(value)]
    ends = {"least": finite.min().item(), "most": finite.max().item()} if finite.size else {}
    return {**shape, **ends, "not_finite": value.size - finite.size, "first": value.reshape(-1)[:_SHOWN].tolist()}


def to_dicts(seen: "list[ObservedValue] | None") -> list[dict[str, object]] | None:
    return None if seen is None else [item.to_dict() for item in seen]


def load(path: Path, given: argparse.Namespace, numerics: str | None = None) -> "Model":
    from ane_sweep import reference

    effects = given.effects.split(",") if given.effects and numerics is None else None
    how = numerics or given.numerics
    model: Model = reference.load(path, given.function, numerics=how, effects=effects, device=given.device)
    return model


def say_if_slow(path: Path, names: Iterable[str] | None, option: str) -> None:
    """Print the expected time before a long computation, if every product is rounded separately."""
    from ane_sweep.placement import costs, programs

    if "products" not in select_effects(names):
        return
    sites = [site for part in programs.load_chain([path]) for site in part.sites]
    seconds = sum(map(costs.flop, sites)) / 2 * PRODUCT_NS / 1e9
    if seconds >= _SLOW_S:
        say(
            f"{option} rounds every product by itself: about {seconds:.0f} s of one core here; --effects without `products` less"
        )


def describe_numerics(model: "Model") -> str:
    """Return a model's numerics, and its device if that is not the CPU."""
    return ", on ".join(str(model.realised[name]) for name in ("numerics", "device") if name in model.realised)


def read_inputs(given: list[str], features: "Mapping[str, Feature]", seed: int | None) -> dict[str, object]:
    """Return the values of all inputs. Raises ConfigError for files that cannot be read or match no input."""
    values: dict[str, object] = {}
    for text in given:
        name, _, file = text.rpartition("=")
        if name and name not in features:
            raise ConfigError(f"--input {text}: no input is called {name!r}; inputs: {', '.join(features)}")
        content = _read(Path(file))
        if isinstance(content, dict) and not name:
            values |= content
        elif name or len(features) == 1:
            values[name or next(iter(features))] = content
        else:
            raise ConfigError(f"--input {text}: which input is it? Write NAME={file}; inputs: {', '.join(features)}")
    generator = np.random.default_rng(seed)
    for name, feature in features.items():
        if name not in values and seed is not None and not (feature.is_optional and feature.kind == "double"):
            values[name] = _random(feature, generator)
    return values


def _random(feature: "Feature", generator: np.random.Generator) -> np.ndarray:
    if feature.kind == "image":
        return np.asarray(generator.integers(0, 256, feature.shape), np.float32)
    if feature.dtype.kind in "iu":
        return np.asarray(generator.integers(0, 2, feature.shape), feature.dtype)
    return np.asarray(generator.standard_normal(feature.shape), feature.dtype)


def _read(path: Path) -> object:
    if path.exists() and not path.is_file():
        raise ConfigError(f"--input {path}: it is no regular file")
    try:
        if path.suffix in (".npy", ".npz"):
            found = np.load(path, allow_pickle=False)
            return dict(found) if isinstance(found, np.lib.npyio.NpzFile) else found
        from PIL import Image

        return Image.open(path).copy()
    except ImportError as error:
        raise ConfigError(f"{path}: neither .npy nor .npz; to read it as an image: pip install pillow") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError(f"--input {path}: cannot be read: {error}") from error


def describe_value(value: object) -> str:
    if not isinstance(value, np.ndarray):
        if hasattr(value, "size") and hasattr(value, "mode"):
            return f"image {value.size[0]} x {value.size[1]} ({value.mode})"
        return str(value)
    text = f"{value.dtype} {list(value.shape)}"
    if not value.size or value.dtype.kind not in "biuf":
        return text
    shown = ", ".join(f"{item:.6g}" for item in value.reshape(-1)[:_SHOWN].astype(np.float64))
    finite = value[np.isfinite(value)]
    span = f"from {finite.min():.6g} to {finite.max():.6g}" if finite.size else "nothing finite"
    lost = f", {value.size - finite.size} not finite" if finite.size < value.size else ""
    return f"{text} {span}{lost}: {shown}{', ...' if value.size > _SHOWN else ''}"


def _print_watched(seen: "list[ObservedValue]") -> None:
    bad = [item for item in seen if item.nan or item.infinite or item.saturated]
    print(f"{len(seen)} values seen, {len(bad)} of them with NaN, infinite or saturated elements")
    for item in bad:
        counts = [("NaN", item.nan), ("infinite", item.infinite), ("saturated", item.saturated)]
        print(f"  {item.name} ({item.type}): {', '.join(f'{count} {what}' for what, count in counts if count)}")


def print_drift(seen: "list[ObservedValue]", title: str) -> None:
    """Print rows of ops with their distances, each relative to the largest magnitude of the reference value."""
    print(f"{title}:")
    rows = [
        [*("" if rate is None else f"{rate:.2e}" for rate in (item.drift, item.jump, item.own)),
         f"{item.name} ({item.type} {item.dtype} {list(item.shape)})"]
        for item in seen
    ]  # fmt: skip
    print(indent(tables.aligned(rows, heads=("drift", "jump", "own", "op"), right=range(3)), "  "))


def _arrays(outputs: Mapping[str, object]) -> dict[str, np.ndarray]:
    return {name: value for name, value in outputs.items() if isinstance(value, np.ndarray)}


def _write(path: Path, outputs: Mapping[str, object]) -> None:
    arrays: dict[str, Any] = {**_arrays(outputs)}  # to numpy's stubs one could be `allow_pickle`
    try:
        with open_user_file(path) as aside, open(aside, "wb") as file:
            np.savez(file, **arrays)
    except OSError as error:
        raise AneSweepError(f"{path}: cannot be written ({error.strerror})") from error

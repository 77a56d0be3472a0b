"""`ane-sweep run PACKAGE --input x.npy`: one prediction of any ML Program, on any host"""

import argparse
import contextlib
import resource
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np

from ane_sweep import installed, tables
from ane_sweep.bridge.disk import open_user_file
from ane_sweep.errors import AneSweepError, ConfigError
from ane_sweep.machine.memory import memory_budget
from ane_sweep.terminal import BAD_CONFIGURATION, OK, say, tell
from ane_sweep.words import Parser

_SLOW_S = 20  # from so long a wait on, it is said before
_SHOWN = 4  # values of an output that are printed


def add_shared_options(made: Parser, *models: str) -> Parser:
    """Add the options that `run` and `diff` share and return the parser; `models` are the positional words."""
    for model in models:
        made.add_argument(model, type=Path, metavar=model.upper(), help="a .mlpackage (or .mlmodel) of an ML Program")
    made.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="an .npy array, an .npz of arrays by name, or an image; NAME may be left out where there is one input",
    )
    made.add_argument(
        "--random", type=parse_whole_number, metavar="SEED", help="seeded random values for inputs that are not given"
    )
    made.add_argument(
        "--function", default="", metavar="NAME", help="of a multifunction package (default: its default one)"
    )
    made.add_argument(
        "--numerics",
        choices=("fp16", "fp32", "ane"),
        metavar="fp16|fp32|ane",
        help="how to compute (default: as declared)",
    )
    made.add_argument(
        "--effects",
        metavar="NAME,...",
        help="with --numerics ane: names of its effects (default: those measured by several)",
    )
    made.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        metavar="cpu|cuda",
        help="cuda: an NVIDIA GPU (default: cpu)",
    )
    return made


def parse_whole_number(word: str) -> int:
    if not word.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} is no whole number of 0 or more")
    return int(word)


def run(args: list[str]) -> int:
    """Predict once and print the outputs; return 0, or 2 if the model or an input is wrong."""
    options = Parser(
        "run",
        "MODEL [--input [NAME=]FILE]... [--random SEED] [--output FILE.npz] [--value NAME]... [--watch] [--drift N] [--json]",
        "One prediction of any ML Program by the reference runtime, on any host: what comes out, and what happens inside.",
        "ane-sweep run model.mlpackage --input x.npy",
        {BAD_CONFIGURATION: "a wrong word, or a model or an input that cannot be used"},
    )
    add_shared_options(options, "model")
    options.add_argument("--output", type=Path, metavar="FILE.npz", help="write all array outputs")
    options.add_argument("--value", action="append", default=[], metavar="NAME", help="an intermediate value as well")
    options.add_argument("--watch", action="store_true", help="list ops with NaN, infinite or saturated values")
    options.add_argument("--drift", type=parse_whole_number, metavar="N", help="the N ops that lose most against fp32")
    options.json("package, computed, outputs, values, watched, drift, written", "lines of text")
    return _run(options.read(args))


@contextlib.contextmanager
def within_memory() -> Iterator[None]:
    """Limit this process to a sweep's memory: a request for more ends with an error message, not with the kernel's kill."""
    (soft, hard), most = resource.getrlimit(resource.RLIMIT_DATA), memory_budget(None)
    most = most if soft == resource.RLIM_INFINITY else min(soft, most)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    except MemoryError as error:
        raise AneSweepError(
            f"it needs more than the {most / 1e9:.3g} GB that this process may have: {error}"
        ) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@within_memory()
def _run(given: argparse.Namespace) -> int:
    installed.need_worker("ane-sweep run")
    from ane_sweep.reference import trace

    model = load(given.model, given)
    if given.numerics == "ane":
        _say_if_slow(given)
    inputs = read_inputs(given.input, model.inputs, given.random)
    outputs = model.predict(inputs, model.new_state() if model.states else None)
    kept = (
        trace.collect_values(model, inputs, given.value, model.new_state() if model.states else None)
        if given.value
        else {}
    )
    watched = trace.record_values(model, inputs, model.new_state() if model.states else None) if given.watch else None
    exact = load(given.model, given, numerics="fp32") if given.drift else None
    worst = trace.rank_worst(trace.measure_drift(model, exact, inputs), given.drift) if exact else None
    if given.output:
        _write(given.output, outputs | kept)
    if given.json:
        tell(
            package=str(given.model), computed=describe_numerics(model), outputs=_plain(outputs), values=_plain(kept),
            watched=rows(watched), drift=rows(worst), written=given.output and str(given.output),
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


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return each array's type, shape, extremes and number of non-finite elements; any other value as text."""
    return {
        name: _figures(value) if isinstance(value, np.ndarray) else describe_value(value)
        for name, value in values.items()
    }


def _figures(value: np.ndarray) -> dict[str, Any]:
    told: dict[str, Any] = {"dtype": str(value.dtype), "shape": list(value.shape)}
    if not value.size or value.dtype.kind not in "biuf":
        return told
    finite = value[np.isfinite(value)] if value.dtype.kind == "f" else value
    ends = {"least": finite.min().item(), "most": finite.max().item()} if finite.size else {}
    return {**told, **ends, "not_finite": value.size - finite.size, "first": value.reshape(-1)[:_SHOWN].tolist()}


def rows(seen: list[Any] | None) -> list[dict[str, Any]] | None:
    return None if seen is None else [asdict(item) for item in seen]


def load(path: Path, given: argparse.Namespace, numerics: str | None = None) -> Any:
    """Load the model with the given options."""
    from ane_sweep import reference

    effects = given.effects.split(",") if given.effects and numerics is None else None
    how: Any = {"numerics": numerics or given.numerics, "effects": effects, "device": given.device}
    return reference.load(path, given.function, **how)


def _say_if_slow(given: argparse.Namespace) -> None:
    """Print the expected time before a long wait, as every product is rounded separately."""
    from ane_sweep.mil import effects
    from ane_sweep.placement import costs, programs

    if "products" not in effects.select_effects(given.effects.split(",") if given.effects else None):
        return
    sites = [site for part in programs.load_chain([given.model]) for site in part.sites]
    seconds = sum(map(costs.flop, sites)) / 2 * effects.PRODUCT_NS / 1e9
    if seconds >= _SLOW_S:
        say(
            f"--numerics ane rounds every product by itself: about {seconds:.0f} s of one core here; --effects without `products` less"
        )


def describe_numerics(model: Any) -> str:
    """Return a model's numerics, and its device if that is not the CPU."""
    return ", on ".join(model.realised[name] for name in ("numerics", "device") if name in model.realised)


def read_inputs(given: list[str], features: dict[str, Any], seed: int | None) -> dict[str, Any]:
    """Return the values of all inputs. Raises ConfigError for files that cannot be read or that belong to no input."""
    values: dict[str, Any] = {}
    for text in given:
        name, _, file = text.rpartition("=")
        if name and name not in features:
            raise ConfigError(f"--input {text}: no input is called {name!r}; inputs: {', '.join(features)}")
        found = _read(Path(file))
        if isinstance(found, dict) and not name:
            values |= found
        elif name or len(features) == 1:
            values[name or next(iter(features))] = found
        else:
            raise ConfigError(f"--input {text}: which input is it? Write NAME={file}; inputs: {', '.join(features)}")
    generator = np.random.default_rng(seed)
    for name, feature in features.items():
        if name not in values and seed is not None and not (feature.is_optional and feature.kind == "double"):
            values[name] = _random(feature, generator)
    return values


def _random(feature: Any, generator: np.random.Generator) -> np.ndarray:
    if feature.kind == "image":
        return np.asarray(generator.integers(0, 256, feature.shape), np.float32)
    if feature.dtype.kind in "iu":
        return np.asarray(generator.integers(0, 2, feature.shape), feature.dtype)
    return np.asarray(generator.standard_normal(feature.shape), feature.dtype)


def _read(path: Path) -> Any:
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


def describe_value(value: Any) -> str:
    """Return one line about an output."""
    if not isinstance(value, np.ndarray):
        return str(value) if not hasattr(value, "size") else f"image {value.size[0]} x {value.size[1]} ({value.mode})"
    text = f"{value.dtype} {list(value.shape)}"
    if not value.size or value.dtype.kind not in "biuf":
        return text
    shown = ", ".join(f"{item:.6g}" for item in value.reshape(-1)[:_SHOWN].astype(np.float64))
    more = ", ..." if value.size > _SHOWN else ""
    finite = value[np.isfinite(value)] if value.dtype.kind == "f" else value
    span = f"from {finite.min():.6g} to {finite.max():.6g}" if finite.size else "nothing finite"
    lost = value.size - finite.size
    return f"{text} {span}{f', {lost} not finite' if lost else ''}: {shown}{more}"


def _print_watched(seen: list[Any]) -> None:
    bad = [item for item in seen if item.nan or item.infinite or item.saturated]
    print(f"{len(seen)} values seen, {len(bad)} of them with NaN, infinite or saturated elements")
    for item in bad:
        counts = [("NaN", item.nan), ("infinite", item.infinite), ("saturated", item.saturated)]
        print(f"  {item.name} ({item.type}): {', '.join(f'{count} {what}' for what, count in counts if count)}")


def print_drift(seen: list[Any], title: str) -> None:
    """Print rows of ops with their distances, each relative to the largest magnitude of the value in the reference."""
    print(f"{title}:")
    rows = (
        (
            *("" if rate is None else f"{rate:.2e}" for rate in (item.drift, item.jump, item.own)),
            f"{item.name} ({item.type} {item.dtype} {list(item.shape)})",
        )
        for item in seen
    )
    print(indent(tables.aligned(rows, heads=("drift", "jump", "own", "op"), right=range(3)), "  "))


def _arrays(outputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in outputs.items() if isinstance(value, np.ndarray)}


def _write(path: Path, outputs: dict[str, Any]) -> None:
    try:
        with open_user_file(path) as aside, open(aside, "wb") as file:
            np.savez(file, **_arrays(outputs))
    except OSError as error:
        raise AneSweepError(f"{path}: cannot be written ({error.strerror})") from error

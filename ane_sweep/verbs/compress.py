"""`ane-sweep compress MODEL PRECISION -o FILE`: the weights of any package by a recipe of ours, without a sweep"""

from pathlib import Path
from typing import Any

from ane_sweep.bridge import recipes
from ane_sweep.bridge.axes import TARGETS
from ane_sweep.errors import ConfigError
from ane_sweep.fix import output
from ane_sweep.terminal import NOT_ALL_OK, duration, format_path, size
from ane_sweep.verbs import _workers
from ane_sweep.words import Parser


def compress(args: list[str]) -> int:
    parser = Parser(
        "compress MODEL PRECISION -o FILE.mlpackage [--force] [--json] [--config-dir DIR]",
        "Compress the weights of any ML Program by a recipe of ours, in a fresh process: palettes, integers, pruning, mixed "
        "bits. A package of up to 60 MB is also run, and its PSNR against itself in fp32 is told.",
        "ane-sweep compress model.mlpackage p4 -o small.mlpackage",
        {NOT_ALL_OK: "it could not be compressed so; nothing was written"},
    )
    parser.add("model MODEL", "a .mlpackage of an ML Program")
    parser.add("precision PRECISION", "a recipe: an option of conf/precision, as p4, int8_channel, mixed4")
    _workers.add_shared_options(parser, "the package to write")
    parser.add("--config-dir DIR", "a folder with recipes of your own: precision/NAME.yaml (default: none)")
    parser.json(
        "path, bytes_before, bytes_after, bits_per_weight, psnr_db, psnr_worst_db, weights_compressed, weights_left, seconds",
        "lines of text",
    )  # fmt: skip
    given = parser.read(args)
    target = _workers.parse_target(given, "compress", True, "a package is called NAME.mlpackage")
    option = _option(given.precision, given.config_dir)

    def work(bench: _workers.Bench) -> _workers.Result:
        _check(given.precision, option, bench.known, given.model)
        return _compress(bench, recipes.canonical(option["weights"]), target)

    return _workers.write_result(given, target, work)


def _option(name: str, config_dir: str | None) -> dict[str, Any]:
    """Return the option of a precision. Raises ConfigError if it is unknown or compresses nothing."""
    from ane_sweep.planner import compose, schema, unread

    composer = compose.Composer(config_dir)
    if not composer.has("precision", name):
        raise ConfigError(unread.unknown_option("precision", name, composer.options("precision")))
    config = composer.compose([f"precision={compose.as_text(name)}"])
    if found := schema.problems(config):
        raise ConfigError(found)
    option = config["precision"]
    if not isinstance(option, dict) or option["weights"] is None:
        raise ConfigError(
            f"{name}: it decides what is computed in which type at conversion, and compresses no weights; p4 does"
        )
    return option


def _check(name: str, option: dict[str, Any], known: dict[str, Any], model: str) -> None:
    """Raise ConfigError for a recipe that the program, or its OS, does not support."""
    recipe = recipes.canonical(option["weights"])
    least, what = recipes.least_target(recipe) if recipe else (option["min_target"], "")
    least = max(least, option["min_target"], key=TARGETS.index)
    if TARGETS.index(known["target"]) < TARGETS.index(least):
        raise ConfigError(f"{name} needs a program for {least} or newer ({what}), and {model} is of {known['target']}")
    if known["compressed"]:
        raise ConfigError(
            f"{model}: holds {known['compressed']} compressed weights already; give the package before its compression"
        )
    if known["functions"] > 1:
        raise ConfigError(
            f"{model}: has {known['functions']} functions; coremltools 9.0 compresses programs of one function"
        )


def _compress(bench: _workers.Bench, recipe: Any, target: Path) -> _workers.Result:
    before, wanted = _workers.size_of(bench.package), recipes.calibration(recipe)
    reference = bench.reference() if wanted is not None or bench.is_small else None
    inputs = {"program": bench.program}
    if wanted is not None and reference is not None:
        inputs["calibration"] = bench.stage("calibrate", wanted, {**inputs, "reference": reference})[1]
    result, out = bench.stage("compress", {"recipe": recipe}, inputs)
    metrics = list(result.metrics)
    if reference is not None and bench.is_small:
        metrics += bench.score(out, reference)[0].metrics
    after = _workers.size_of(out / "model.mlpackage")
    output.put_in_place(out / "model.mlpackage", target)
    figures = {metric.name: metric.value for metric in metrics}
    psnr, worst, bits = figures.get("psnr_db"), figures.get("psnr_worst_db"), figures["bits_per_weight"]
    done, left = result.realised.get("weights_compressed"), result.realised.get("weights_left")
    closeness = "not taken (a package of more than 60 MB)" if psnr is None else f"{psnr:.1f} dB"
    closeness += "" if worst is None else f", worst output {worst:.1f} dB"
    lines = [
        format_path(target),
        f"  size    {size(before)} -> {size(after)}, {bits:.2f} bits a weight",
        f"  weights {done} compressed{f', {left} left as they are' if left else ''}, in {duration(result.seconds)}",
        f"  PSNR    {closeness}, against itself in fp32, reference runtime",
    ]
    return lines, {
        "path": str(target), "bytes_before": before, "bytes_after": after, "bits_per_weight": bits,
        "psnr_db": psnr, "psnr_worst_db": worst, "seconds": result.seconds, **result.realised,
    }  # fmt: skip
